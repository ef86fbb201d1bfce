"""What pydantic finds wrong, in the words of the spec: field, rule, value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .model import near
from .run import NAME
from .yaml_document import Part, YamlDocument

MAX_VALUE_CHARS = 60
UNION_TAGS = ("str", "tuple[str, ...]")
REWORDED = (
    (r"^\w+ should ", "must "),
    (r"a valid dictionary or instance of \w+", "a mapping"),
    (r"a valid dictionary", "a mapping"),
    (r", got a number with a fractional part$", ""),
    (r"a valid (\w+)(, unable to parse \w+ as an? \w+)?$", r"a \1"),
    (r"\ba integer", "an integer"),
    (r"a tuple", "a list"),
    (r" after validation, not \d+", ""),
)
NAME_RULE = "must have 1 to 63 of a-z, 0-9, '_', '.' and '-', and start with a letter or digit"


def describe_faults(error: ValidationError, model: type[BaseModel], document: YamlDocument) -> list[str]:
    """One line a fault, `FILE:LINE: field: rule, got value`, in the order of the file."""
    found: dict[tuple[int, str], list[str]] = {}
    all_details = error.errors(include_url=False)
    for details in all_details:
        if _is_echo(details, all_details):
            continue
        for parts, text in _faults_of(details, model, document):
            place = document.place(parts)
            found.setdefault((place.line, place.field), []).append(text)
    return [f"{document.name}:{line}: {field}: {_either(texts)}" for (line, field), texts in sorted(found.items())]


def _is_echo(details: ErrorDetails, all_details: list[ErrorDetails]) -> bool:
    """Whether a list or mapping is faulted only for what is wrong inside it.

    Pydantic counts the items that passed, and tries a list as a string where that is allowed too.
    """
    if details["type"] in ("value_error", "missing", "extra_forbidden") or not isinstance(details["input"], list):
        return False
    here = [part for part in details["loc"] if part not in UNION_TAGS]
    inner = [[part for part in other["loc"] if part not in UNION_TAGS] for other in all_details]
    return any(len(loc) > len(here) and loc[: len(here)] == here for loc in inner)


def _faults_of(
    details: ErrorDetails, model: type[BaseModel], document: YamlDocument
) -> Iterator[tuple[Sequence[Part], str]]:
    parts: list[Part] = list(details["loc"])
    if details["type"] == "value_error":
        for text in str(details["ctx"]["error"]).splitlines():
            yield _at_named_field(parts, text, model, document)
    elif details["type"] == "extra_forbidden":
        yield parts, f"unknown key {parts[-1]!r}; {near(str(parts[-1]), _fields_at(model, parts[:-1]))}"
    elif details["type"] == "missing":
        yield parts, "is missing"
    elif parts and parts[-1] == "[key]":
        yield parts[:-1], NAME_RULE
    elif details["type"] == "string_pattern_mismatch" and details["ctx"]["pattern"] == NAME:
        yield parts, NAME_RULE + _got(details["input"])
    else:
        yield parts, _reword(details["msg"]) + _got(details["input"])


def _at_named_field(
    parts: list[Part], text: str, model: type[BaseModel], document: YamlDocument
) -> tuple[Sequence[Part], str]:
    """Move a fault `align must divide ...` of a model to its field `align`."""
    head, _, rest = text.partition(" ")
    if head.partition(".")[0] not in _fields_at(model, parts):
        return parts, text
    prefix = "".join(f"{part}." for part in parts)
    return document.split(prefix + head), rest


def _fields_at(model: type[BaseModel], parts: Sequence[Part]) -> list[str]:
    """Field names of the model that is at a path; none where there is no model."""
    here: Any = model
    for part in parts:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(part))
            here = None if field is None else _one_type(field.annotation)
        elif get_origin(here) in (dict, tuple):
            here = _one_type(get_args(here)[-1 if get_origin(here) is dict else 0])
    return list(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else []


def _one_type(annotation: Any) -> Any:
    """The member of an optional annotation that may hold a model."""
    if get_origin(annotation) in (dict, tuple, None):
        return annotation
    return next((arg for arg in get_args(annotation) if arg is not type(None)), None)


def _reword(message: str) -> str:
    for pattern, words in REWORDED:
        message = re.sub(pattern, words, message)
    return message


def _got(value: object) -> str:
    if isinstance(value, (dict, list, tuple)):
        return f", got a {'mapping' if isinstance(value, dict) else 'list'}"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return f", got {text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + '...'}"


def _either(texts: list[str]) -> str:
    """Join the faults of one field: the alternatives of a union all fail on the same value."""
    rules = list(dict.fromkeys(texts))
    tails = {rule.rpartition(", got ")[2] for rule in rules}
    if len(rules) > 1 and len(tails) == 1 and all(", got " in rule for rule in rules):
        heads = [rule.rpartition(", got ")[0].removeprefix("must be ") for rule in rules]
        return f"must be {' or '.join(heads)}, got {tails.pop()}"
    return "; ".join(rules)
