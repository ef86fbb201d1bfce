"""Writes docs/reference/run-spec.md from the pydantic models of a run spec.

python docs/site/spec_reference.py            write it
python docs/site/spec_reference.py --check    fail when it is stale, or a field has no description
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from loadmaster_flight.spec import RunSpec

PAGE = Path(__file__).parents[1] / "reference" / "run-spec.md"
HEAD = """\
# Run spec: all fields

Generated from the models by `docs/site/spec_reference.py`. [The run spec](../run-spec.md) explains them with examples.
An unknown key is an error; every error names field, rule, value and line.
"""
FILLED = {"RunSpec.mixture": "equal shares", "MixtureSpec.weights": "equal shares"}
"""Fields that a validator fills in."""
SIGNS = {Ge: "≥", Gt: ">", Le: "≤", Lt: "<"}


def models_of(root: type[BaseModel] = RunSpec) -> dict[type[BaseModel], str]:
    """Model -> where it stands in a spec, in the order of the spec."""
    found: dict[type[BaseModel], str] = {}

    def visit(model: type[BaseModel], path: str) -> None:
        if model in found:
            return
        found[model] = path
        for name, field in model.model_fields.items():
            is_named = typing.get_origin(field.annotation) is dict
            for inner in _models_in(field.annotation):
                visit(inner, f"{path}.{name}".lstrip(".") + (".NAME" if is_named else ""))

    visit(root, "")
    return found


def undescribed() -> list[str]:
    """Fields without a description: Model.field."""
    return [f"{m.__name__}.{name}" for m in models_of() for name, f in m.model_fields.items() if not f.description]


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for model, path in models_of().items() for line in _section(model, path))])


def _section(model: type[BaseModel], path: str) -> Iterator[str]:
    yield f"## {f'`{path}`' if path else 'The file'}\n"
    yield f"{_flat(inspect.getdoc(model) or '')}\n"
    yield "| key | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, field in model.model_fields.items():
        default = FILLED.get(f"{model.__name__}.{name}") or _default(field)
        cells = (f"`{name}`", _kind(field), default, _flat(field.description or ""))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _kind(field: FieldInfo) -> str:
    """Type and bounds, in words."""
    rules = [_rule(bound) for bound in _bounds(field.annotation, field.metadata)]
    return ", ".join([_type(field.annotation), *rules])


def _bounds(annotation: object, metadata: list[object]) -> Iterator[object]:
    yield from (bound for bound in metadata if isinstance(bound, (Ge, Gt, Le, Lt, MinLen)))
    for inner in typing.get_args(annotation):
        if typing.get_origin(inner) is typing.Annotated and typing.get_origin(annotation) is not dict:
            info = typing.get_args(inner)[1]
            yield from _bounds(None, info.metadata if isinstance(info, FieldInfo) else [])


def _rule(bound: object) -> str:
    if isinstance(bound, MinLen):
        return f"at least {bound.min_length}"
    value = next(getattr(bound, name) for name in ("ge", "gt", "le", "lt") if hasattr(bound, name))
    return f"{SIGNS[type(bound)]} {value:,}" if value < 1 << 62 else "64 bits"


def _type(annotation: object) -> str:
    """A type as people write it in YAML."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(inner[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin is dict:
        return f"{_type(inner[0])} → {_type(inner[1])}"
    if origin is tuple:
        return f"list of {_type(inner[0])}" if inner[-1] is Ellipsis else f"{len(inner)} × {_type(inner[0])}"
    if inner:
        return " or ".join(dict.fromkeys(_type(part) for part in inner if part is not type(None)))
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return _link(annotation)
    return {str: "text", int: "integer", float: "number", bool: "true or false"}.get(annotation, "any")  # type: ignore[call-overload]


def _link(model: type[BaseModel]) -> str:
    if model.__name__ == "Ramp":
        return "number or list of [knots](#{})".format(_anchor(models_of()[model] + ".knots"))
    return f"[section](#{_anchor(models_of()[model])})"


def _anchor(path: str) -> str:
    return "".join(c for c in path.lower() if c.isalnum() or c == "_")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "its own defaults"
    if value is None or value in ((), {}):
        return "none"
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 1 << 16 and not value & ((1 << 16) - 1):
        return f"{value >> 20:,} MiB" if not value & ((1 << 20) - 1) else f"{value >> 10:,} KiB"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models_in(inner)


def _flat(text: str) -> str:
    return " ".join(text.split())


def main(argv: list[str]) -> int:
    """Write or check; returns the exit code."""
    missing, text = undescribed(), page()
    if missing:
        print(f"fields without a description: {', '.join(missing)}", file=sys.stderr)
        return 1
    if "--check" not in argv:
        PAGE.write_text(text, "utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != text:
        print(f"{PAGE.name} is stale: python docs/site/spec_reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
