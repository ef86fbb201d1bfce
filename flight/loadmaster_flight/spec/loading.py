"""Reading a run spec from YAML, with errors that name field, rule, value and line."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from ..wire.errors import SpecError
from .faults import describe_faults
from .run import RunSpec
from .source import SourceSpec
from .yaml_document import YamlDocument


def load_run_spec(path: str | Path) -> RunSpec:
    """Read and check a run spec; relative paths in it are resolved against its folder.

    Raises:
        SpecError: Not YAML, or a field is wrong; one line a fault, each with field, rule, value and YAML line.
    """
    document = YamlDocument(Path(path))
    try:
        run = RunSpec.model_validate(document.tree)
    except ValidationError as error:
        raise SpecError("\n".join(describe_faults(error, RunSpec, document))) from error
    return _with_absolute_paths(run, Path(path).absolute().parent)


def line_of(path: str | Path, field: str) -> int:
    """Line of a field (`sources.web.uri`) of a spec file, or of the nearest thing around it that is there.

    Raises:
        SpecError: The file is not YAML any more.
    """
    document = YamlDocument(Path(path))
    return document.place(document.split(field)).line


def _with_absolute_paths(run: RunSpec, base: Path) -> RunSpec:
    sources = {name: _source_with_absolute_paths(source, base) for name, source in run.sources.items()}
    return run.model_copy(update={"sources": sources, "tokenizer": _absolute(run.tokenizer, base)})


def _source_with_absolute_paths(source: SourceSpec, base: Path) -> SourceSpec:
    uris = tuple(_absolute(uri, base) for uri in source.uris)
    transform = source.transform
    template = transform.chat_template
    paths = {
        "tokenizer": _absolute(transform.tokenizer, base),
        "chat_template": _absolute(template, base) if transform.is_template_file else template,
    }
    uri = uris[0] if isinstance(source.uri, str) else uris
    media_root = _absolute(source.media_root, base)
    update = {"uri": uri, "media_root": media_root, "transform": transform.model_copy(update=paths)}
    return source.model_copy(update=update)


def _absolute(path: str | None, base: Path) -> str | None:
    """A local path made absolute; addresses with a scheme stay."""
    if path is None or "://" in path:
        return path
    return os.path.normpath(base / Path(path).expanduser())
