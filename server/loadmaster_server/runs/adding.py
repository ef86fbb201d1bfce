"""Sources that join a run after it was created."""

from __future__ import annotations

from pydantic import ValidationError

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.control import AddSourceRequest
from loadmaster_flight.wire.errors import BadRequestError, ConflictError, SpecError

from ..faults import describe_faults
from ..store import Definition
from .comparison import name_differences
from .mesh import check_spec


def with_source(definition: Definition, request: AddSourceRequest) -> RunSpec:
    """The run's spec with another source, behind all others and without weight.

    Raises:
        SpecError: The run cannot have it; names the field.
    """
    tree = definition.spec.to_tree()
    try:
        spec = RunSpec.model_validate(tree | {"sources": tree["sources"] | {request.name: request.source}})
    except ValidationError as error:
        raise SpecError(f"spec: {describe_faults(error.errors())}") from error
    check_spec(spec)
    return spec


def checked_source(definition: Definition, request: AddSourceRequest) -> SourceManifest:
    """The manifest of a source that is to be added, with the ordinal that it gets.

    Raises:
        BadRequestError: It is none, or of another source.
        SpecError: As `with_source`.
    """
    manifest = _manifest_of(request)
    if manifest.name != request.name:
        raise BadRequestError(f"manifest.name must be that of the source, {request.name!r}, got {manifest.name!r}")
    with_source(definition, request)
    return manifest.model_copy(update={"ordinal": len(definition.manifests)})


def check_same_source(definition: Definition, request: AddSourceRequest) -> None:
    """Adding a source again changes nothing.

    Raises:
        ConflictError: The run has another source of that name; names what differs.
    """
    ordinal = definition.spec.source_names.index(request.name)
    again = _manifest_of(request).model_copy(update={"ordinal": ordinal})
    before, after = (
        {"source": spec.to_tree()["sources"][request.name], "manifest": manifest.model_dump(mode="json")}
        for spec, manifest in (
            (definition.spec, definition.manifests[ordinal]),
            (with_source(definition, request), again),
        )
    )
    if found := name_differences(before, after):
        what = f"run {definition.spec.run!r} has another source {request.name!r}"
        raise ConflictError(f"{what}: {found}. Give the new one another name")


def _manifest_of(request: AddSourceRequest) -> SourceManifest:
    try:
        return SourceManifest.model_validate(request.manifest)
    except ValidationError as error:
        raise BadRequestError(f"manifest: {describe_faults(error.errors())}") from error
