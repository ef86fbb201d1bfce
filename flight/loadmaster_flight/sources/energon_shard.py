"""One tar file of an Energon dataset: its samples by the fields of the dataset."""

from __future__ import annotations

from ..spec.manifest import SourceManifest
from ..spec.source import SourceSpec
from .blocks import Block, Projection
from .energon import excluded_keys
from .fields import FieldMap, MappedBlock
from .files import ShardFile
from .grouping import grouping_of
from .webdataset import TarShard


class EnergonShard:
    """Blocks of one archive under the field map that was frozen. Thread-safe."""

    def __init__(self, manifest: SourceManifest, file: ShardFile, spec: SourceSpec, projection: Projection) -> None:
        self._fields = FieldMap(manifest.field_map)
        self._tar = TarShard(
            file,
            manifest.block_bytes,
            self._fields.project(projection),
            grouping=grouping_of(spec.group),
            excluded=excluded_keys(manifest.excluded, file.uri),
        )

    def num_blocks(self) -> int | None:
        """Known once the end was read."""
        return self._tar.num_blocks()

    def read(self, block: int) -> Block:
        return MappedBlock(self._tar.read(block), self._fields)
