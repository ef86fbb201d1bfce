"""Finding the sources in a folder of data: files of one format below one sub-folder make one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loadmaster_flight.sources.formats import compression_of, format_of
from loadmaster_flight.spec import SourceFormat
from loadmaster_flight.wire.errors import LoadmasterError

from .columns import Column, first_rows, guess_column, whole_row_source
from .media_columns import CAPTION_FILES, guess_media, is_media_file, without_media

NOT_DATA = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json", "package.json")
MAX_NAME_CHARS = 63
MAX_COLUMNS_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSource:
    """Files that would make a source.

    Attributes:
        uris: Globs or paths, relative to the folder that was scanned.
        column: None where nothing looks like text; then `fault` says why.
        media: Columns of images, videos and audio, by kind.
    """

    name: str
    uris: tuple[str, ...]
    format: SourceFormat
    num_files: int
    size_bytes: int
    column: Column | None
    fault: str
    media: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        """Whether it has content."""
        return self.column is not None or bool(self.media)


def scan_folder(folder: Path) -> list[FoundSource]:
    """Every source in a folder, by name; looks at a few rows of each."""
    groups: dict[tuple[str, SourceFormat], list[Path]] = {}
    paths = list(_data_files(folder))
    with_media = {_sub_folder(path, folder) for path in paths if is_media_file(path.name)} - {""}
    for path in paths:
        sub_folder = _sub_folder(path, folder)
        is_of_folder = sub_folder in with_media and (is_media_file(path.name) or path.name in CAPTION_FILES)
        kind = SourceFormat.FOLDER if is_of_folder else format_of(path.name)
        if kind is not None:
            groups.setdefault((sub_folder, kind), []).append(path)
    names = _names(groups, folder)
    return [_look_at(folder, names[key], key, files) for key, files in sorted(groups.items())]


def _sub_folder(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).parts
    return parts[0] if len(parts) > 1 else ""


def _data_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if path.is_file() and not is_hidden and path.name not in NOT_DATA and path.stat().st_size > 0:
            yield path


def _names(groups: Iterable[tuple[str, SourceFormat]], folder: Path) -> dict[tuple[str, SourceFormat], str]:
    """A name a group that a run spec accepts: of the sub-folder, with the format where a folder holds several."""
    keys = sorted(groups)
    names: dict[tuple[str, SourceFormat], str] = {}
    for sub_folder, kind in keys:
        has_several = sum(other == sub_folder for other, _ in keys) > 1
        wanted = as_name(f"{sub_folder or folder.absolute().name}{f'-{kind.value}' if has_several else ''}")
        number = 2
        name = wanted
        while name in names.values():
            name, number = f"{wanted[: MAX_NAME_CHARS - 4]}-{number}", number + 1
        names[sub_folder, kind] = name
    return names


def as_name(text: str) -> str:
    """A source name made of any text."""
    name = re.sub(r"[^a-z0-9_.-]+", "-", text.lower()).strip("-_.")
    return name[:MAX_NAME_CHARS] or "data"


def _look_at(folder: Path, name: str, key: tuple[str, SourceFormat], files: list[Path]) -> FoundSource:
    is_folder = key[1] is SourceFormat.FOLDER
    column, media, fault = _columns_of([folder / key[0]] if is_folder else files, key[1])
    return FoundSource(
        name=name,
        uris=(key[0],) if is_folder else tuple(_globs(folder, key[0], files)),
        format=key[1],
        num_files=len(files),
        size_bytes=sum(path.stat().st_size for path in files),
        column=column,
        fault=fault,
        media=media,
    )


def _columns_of(files: list[Path], kind: SourceFormat) -> tuple[Column | None, dict[str, list[str]], str]:
    """The likeliest columns, of text and of media, of the first file that has readable rows."""
    try:
        rows = first_rows(*whole_row_source([str(path) for path in files[:4]], kind))
    except LoadmasterError as error:
        return None, {}, error.message
    if not rows:
        return None, {}, "no row can be read"
    media = guess_media(rows)
    column = guess_column(without_media(rows, media))
    if media and column is not None and column.kind == "tokens":
        column = None
    names = sorted({name for row in rows for name in row})[:MAX_COLUMNS_SHOWN]
    fault = "" if column is not None else f"no column of text, messages or token ids; there are {names}"
    return column, media, fault


def _globs(folder: Path, sub_folder: str, files: list[Path]) -> Iterator[str]:
    """A glob per extension where it matches exactly these files, else the files by name."""
    by_suffix: dict[str, list[Path]] = {}
    for path in files:
        suffixes = path.suffixes[-2:] if compression_of(path.name) is not None else path.suffixes[-1:]
        by_suffix.setdefault("".join(suffixes), []).append(path)
    base = folder / sub_folder
    for suffix, members in sorted(by_suffix.items()):
        is_flat = all(path.parent == base for path in members)
        pattern = f"*{suffix}" if is_flat else f"**/*{suffix}"
        if set(base.glob(pattern)) == set(members) and len(members) > 1:
            yield (Path(sub_folder) / pattern).as_posix()
        else:
            yield from (path.relative_to(folder).as_posix() for path in members)
