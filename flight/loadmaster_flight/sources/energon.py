"""Megatron-Energon datasets where they lie: WebDataset shards, and a .nv-meta folder that tells splits and fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from .braces import expand_braces
from .fields import accesses_of
from .files import FileStore, source_error

META = ".nv-meta"
_CODE = "sample_loader"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergonDataset:
    """One prepared dataset folder, as far as a split of it is read.

    Attributes:
        shards: Addresses of its tar files, in the order of the split.
        field_map: Field -> member, from dataset.yaml; empty for a crude dataset and for one that code would map.
        excluded: `shard.tar/key` of samples that are left out.
        num_samples: Of the split, as .info.json counts them; None where it does not.
    """

    shards: tuple[str, ...]
    field_map: Mapping[str, str] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    num_samples: int | None = None


def open_dataset(store: FileStore, source: str, folder: str, split: str) -> EnergonDataset:
    """Read what .nv-meta tells.

    Raises:
        SourceError: The folder was not prepared, or has no such split; names source, file and rule.
    """
    folder = folder.rstrip("/")
    splits = _read(store, source, folder, "split.yaml", "split.json")
    if splits is None:
        rule = f"must hold {META}/split.yaml: run `energon prepare`, or read the tar files with format webdataset"
        raise source_error(source, folder, rule)
    parts = splits.get("split_parts")
    if not isinstance(parts, dict) or split not in parts:
        known = ", ".join(map(str, parts)) if isinstance(parts, dict) else "none"
        raise source_error(source, folder, f"has no split {split!r}; there are {known}", field="split")
    excluded = {name for given in splits.get("exclude") or () for name in expand_braces(str(given))}
    names = [name for given in parts[split] or () for name in expand_braces(str(given)) if name not in excluded]
    if not names:
        raise source_error(source, folder, f"has no shard in split {split!r}", field="split")
    left_out = tuple(
        sorted(name for name in excluded if ".tar/" in name and f"{name.partition('.tar/')[0]}.tar" in names)
    )
    counts = (_read(store, source, folder, ".info.json", ".info.yaml") or {}).get("shard_counts") or {}
    is_counted = all(isinstance(counts.get(name), int) for name in names)
    return EnergonDataset(
        shards=tuple(f"{folder}/{name}" for name in names),
        field_map=_field_map(store, source, folder),
        excluded=left_out,
        num_samples=sum(counts[name] for name in names) - len(left_out) if is_counted else None,
    )


def excluded_keys(excluded: tuple[str, ...], uri: str) -> frozenset[str]:
    """Keys of the samples of one shard that are left out."""
    pairs = (name.partition(".tar/")[::2] for name in excluded)
    return frozenset(key for shard, key in pairs if uri.endswith(f"/{shard}.tar"))


def _field_map(store: FileStore, source: str, folder: str) -> dict[str, str]:
    config = _read(store, source, folder, "dataset.yaml") or {}
    mapping = config.get("field_map") or {}
    place = f"{folder}/{META}/dataset.yaml"
    if not isinstance(mapping, dict):
        raise source_error(source, place, f"must have a mapping as field_map, got {type(mapping).__name__}")
    for name, text in mapping.items():
        try:
            accesses_of(str(text))
        except ValueError as error:
            raise source_error(source, place, f"has a field_map.{name} that cannot be read: {error}") from error
    return {str(name): str(text) for name, text in mapping.items()}


def has_code(store: FileStore, source: str, folder: str) -> bool:
    """Whether the dataset would be mapped by code of its own, which is never run here: its columns are its members."""
    return _CODE in (_read(store, source, folder.rstrip("/"), "dataset.yaml") or {})


def _read(store: FileStore, source: str, folder: str, *names: str) -> dict[str, Any] | None:
    """The first of some files of .nv-meta that is there."""
    for name in names:
        uri = f"{folder}/{META}/{name}"
        try:
            text = store.read_whole(uri)
            tree = json.loads(text) if name.endswith(".json") else yaml.load(text, _PlainLoader)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise source_error(source, uri, f"cannot be read: {' '.join(str(error).split())}") from error
        if not isinstance(tree, dict):
            raise source_error(source, uri, f"must be a mapping, got {type(tree).__name__}")
        return tree
    return None


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML in which tags of Python objects are only their names: they are never imported."""


def _plain(loader: yaml.SafeLoader, _: str, node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    return loader.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else str(node.value)


yaml.add_multi_constructor("", _plain, Loader=_PlainLoader)
