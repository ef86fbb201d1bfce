"""Reading a Megatron-Energon metadataset: the datasets of a split and the shares of its blend."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from loadmaster_flight.wire.errors import SourceError

_PLACES = {"blend": "weight", "blend_epochized": "repetitions", "datasets": "weight"}
"""Lists of datasets, and what their share is called: `datasets` is of a version 1 metadataset."""
_NESTED = (".yaml", ".yml")
_MOST_LEVELS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BlendedDataset:
    """One dataset of a blend.

    Attributes:
        folder: The dataset's folder, or a .jsonl file; local paths are absolute.
        split: Which of its splits is read.
        weight: Its share; for an epochized blend how often it is read through in an epoch.
        is_repeated: The weight counts passes, not samples.
        ignored: Keys that change nothing here, or that cannot be kept; named to the user.
    """

    folder: str
    split: str
    weight: float
    is_repeated: bool
    ignored: tuple[str, ...]


def read_metadataset(path: Path, split: str, *, level: int = 0) -> list[BlendedDataset]:
    """The datasets of a metadataset (version 1 or 2), nested ones included, with the weights multiplied through.

    Raises:
        SourceError: It cannot be read, has no such split, joins datasets or takes a subset of one; names the place.
    """
    tree = _load(path)
    splits = tree.get("splits")
    if not isinstance(splits, dict) or split not in splits:
        known = ", ".join(map(str, splits)) if isinstance(splits, dict) else "none"
        raise SourceError(f"{path}: splits must have {split!r}, there are {known}")
    if level >= _MOST_LEVELS:
        raise SourceError(f"{path}: metadatasets are nested more than {_MOST_LEVELS} deep")
    return list(_datasets(path, splits[split], split, level))


def _load(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SourceError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict):
        raise SourceError(f"{path}: a metadataset must be a mapping with splits, got {type(tree).__name__}")
    return tree


def _datasets(path: Path, node: Any, split: str, level: int) -> Iterator[BlendedDataset]:
    if not isinstance(node, dict):
        raise SourceError(f"{path}: split {split} must be a mapping, got {type(node).__name__}")
    _refuse_unsupported(path, node)
    found = next((name for name in _PLACES if name in node), None)
    if found is None:
        yield from _dataset(path, node, split, 1.0, level, is_repeated=False)
        return
    members = node[found] or []
    shares = [float(member.get(_PLACES[found], 1)) for member in members]
    is_repeated = found == "blend_epochized"
    total = 1.0 if is_repeated else sum(shares)
    for member, share in zip(members, shares, strict=True):
        _refuse_unsupported(path, member)
        if share > 0:
            yield from _dataset(path, member, split, share / total, level, is_repeated=is_repeated)


def _dataset(
    path: Path, node: Mapping[str, Any], split: str, weight: float, level: int, *, is_repeated: bool
) -> Iterator[BlendedDataset]:
    if not isinstance(node.get("path"), str):
        raise SourceError(f"{path}: a dataset must have a path, got the keys {', '.join(map(str, node))}")
    target = str(node["path"])
    if "://" not in target:
        target = os.path.abspath(path.parent / target)
    part = str(node.get("split_part") or split)
    if not target.endswith(_NESTED):
        ignored = sorted(set(node) - {"path", "weight", "repetitions", "split_part"})
        yield BlendedDataset(
            folder=target, split=part, weight=weight, is_repeated=is_repeated, ignored=tuple(map(str, ignored))
        )
        return
    for inner in read_metadataset(Path(target), part, level=level + 1):
        if inner.is_repeated != is_repeated and inner.weight != 1:
            raise SourceError(f"{path}: {target} mixes blend with blend_epochized, which have no common shares")
        yield BlendedDataset(
            folder=inner.folder,
            split=inner.split,
            weight=weight * inner.weight,
            is_repeated=is_repeated,
            ignored=inner.ignored,
        )


def _refuse_unsupported(path: Path, node: Mapping[str, Any]) -> None:
    for key, why in (
        ("join", "joins datasets sample by sample: write the joined samples into one dataset"),
        ("subset", "takes a subset of a dataset: make a split of it (energon prepare)"),
        ("split_config", "names another split file: give the dataset a split.yaml"),
        ("dataset_config", "names another dataset file: give the dataset a dataset.yaml"),
    ):
        if node.get(key) is not None:
            raise SourceError(f"{path}: {key} {why}")
