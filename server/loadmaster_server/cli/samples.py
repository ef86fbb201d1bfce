"""Samples of a source in the run's own order, transformed as the run would, and as a person or a program reads them.

# n = tokens of one sample
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from loadmaster_flight.sources.lanes import LaneReader, LaneRows
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec import SourceManifest
from loadmaster_flight.transforms import Measured, Transform
from loadmaster_flight.transforms.media import NO_ACCESS, MediaAccess
from loadmaster_flight.wire.schemas import MediaKind, Verdict
from loadmaster_server.planning.cost import CostModel
from loadmaster_server.planning.limits import LengthLimits

from .peeked_media import DecodedMedia, decoded_media
from .sample_text import text_of

MAX_CHARS = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a sample; `digest` is the SHA-256 (hex) of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekedSample:
    """One row of a source.

    Attributes:
        reason: Why it is skipped or bad, or, of an OK row, why its media cannot be decoded.
        num_tokens: None where there is no tokenizer, so that the row is shown as it is.
        cost: What it costs in the backbone and, with pictures, in the encoder; in the unit of the run's cost model.
        text: For people: tokens decoded, media by their sizes, targets of the loss in their own style.
        media: Decoded; None where the row has none.
    """

    source: str
    uri: str
    shard: int
    block: int
    pos: int
    row: int
    lane: int
    verdict: Verdict
    reason: str | None
    num_tokens: int | None
    fields: tuple[Field, ...]
    text: Text
    cost: Mapping[str, float] = field(default_factory=dict)
    media: DecodedMedia | None = None

    @property
    def is_masked(self) -> bool:
        """Whether it would keep its place in a batch with loss 0: headers are fine, and decoding fails."""
        return self.media is not None and self.media.masked is not None

    @property
    def verdict_name(self) -> str:
        return "masked" if self.is_masked else self.verdict.name.lower()

    @property
    def name(self) -> str:
        """Names its files."""
        return f"{self.source}-{self.shard}-{self.block}-{self.row}"

    def to_line(self, files: Sequence[Path] = ()) -> str:
        """One line of JSON.

        Args:
            files: What was written of it.
        """
        names = ("source", "uri", "shard", "block", "pos", "row", "lane", "reason", "num_tokens")
        tree: dict[str, Any] = {name: getattr(self, name) for name in names}
        tree |= {"verdict": self.verdict_name, "cost": dict(self.cost), "text": self.text.plain}
        tree["fields"] = [
            {"name": f.name, "dtype": f.dtype, "shape": list(f.shape), "digest": f.digest} for f in self.fields
        ]
        return json.dumps(tree | ({"files": [str(path) for path in files]} if files else {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeker:
    """Transforms rows of one source of a run.

    Attributes:
        limits: Longest samples that the run serves at step 0; None: any.
        backbone: Cost of a document by its tokens.
        encoder: Cost of a unit of pictures by its patches.
    """

    manifest: SourceManifest
    transform: Transform
    limits: LengthLimits | None
    backbone: CostModel
    encoder: CostModel

    def peek(self, lane: int, rows: LaneRows, access: MediaAccess = NO_ACCESS) -> PeekedSample:
        """Measure the first of some rows with the run's transform, and decode its media."""
        measured = self.transform.measure(rows.block_data, rows.rows, access)
        media = measured.media[0] if measured.media is not None else None
        too_long = self._too_long(len(measured.row_tokens(0)), has_media=media is not None)
        if too_long is not None:
            return PeekedSample(
                **_place(lane, rows, self.manifest),
                verdict=Verdict.SKIPPED,
                reason=too_long,
                num_tokens=len(measured.row_tokens(0)),
                fields=(),
                text=text_of(measured, self.transform),
            )
        decoded = None if media is None else decoded_media(rows, media, self.transform, access)
        patches = () if media is None else media.patches
        return PeekedSample(
            **_place(lane, rows, self.manifest),
            verdict=Verdict(int(measured.verdict[0])),
            reason=measured.reason[0] if decoded is None else decoded.masked,
            num_tokens=len(measured.row_tokens(0)),
            fields=(*_fields_of(measured), *_media_fields(decoded)),
            text=text_of(measured, self.transform),
            cost=self._cost(measured, patches),
            media=decoded,
        )

    def _too_long(self, num_tokens: int, *, has_media: bool) -> str | None:
        """Why the planner leaves out a sample of so many tokens; None: it does not."""
        if self.limits is None:
            return None
        longest = self.limits.media if has_media else self.limits.text
        return None if longest is None or num_tokens <= longest else self.limits.reason(has_media=has_media)

    def _cost(self, measured: Measured, patches: Sequence[int]) -> dict[str, float]:
        if measured.verdict[0] != Verdict.OK:
            return {}
        backbone = {"backbone": float(self.backbone(len(measured.row_tokens(0))))}
        return backbone | ({"encoder": float(self.encoder(patches).sum())} if patches else {})


def rows_in_run_order(reader: SourceReader, manifest: SourceManifest, seed: int) -> Iterator[tuple[int, LaneRows]]:
    """Rows of epoch 0 one by one, with their lane: round robin over the lanes that have rows left, lane 0 first."""
    lanes = {lane: LaneReader(reader, manifest, seed, 0, [lane, 0, 0, 0]) for lane in range(manifest.lanes)}
    while lanes:
        for lane, lane_reader in list(lanes.items()):
            rows = lane_reader.next_rows(1)
            if rows is None:
                del lanes[lane]
            else:
                yield lane, rows


def untransformed(lane: int, rows: LaneRows, manifest: SourceManifest) -> PeekedSample:
    """One row as the file has it."""
    row = rows.block_data.row(int(rows.rows[0]))
    values = row if isinstance(row, dict) else {}
    return PeekedSample(
        **_place(lane, rows, manifest),
        verdict=Verdict.OK if isinstance(row, dict) else Verdict.BAD,
        reason=None if isinstance(row, dict) else row.reason,
        num_tokens=None,
        fields=tuple(_field_of_value(name, value) for name, value in values.items()),
        text=Text("\n".join(f"{name}: {shortened(_shown(value))}" for name, value in values.items())),
    )


def shortened(text: str) -> str:
    """A text that fits a terminal."""
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} ... ({len(text):,} characters)"


def _shown(value: object) -> str:
    return f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)


def _place(lane: int, rows: LaneRows, manifest: SourceManifest) -> dict[str, Any]:
    return {
        "source": manifest.name,
        "uri": manifest.shards[rows.shard].uri,
        "shard": rows.shard,
        "block": rows.block,
        "pos": rows.pos_start,
        "row": int(rows.rows[0]),
        "lane": lane,
    }


def _fields_of(measured: Measured) -> tuple[Field, ...]:
    if measured.verdict[0] != Verdict.OK:
        return ()
    fields = [_array_field("tokens", measured.row_tokens(0))]
    spans = measured.loss_spans[0] if measured.loss_spans is not None else None
    return (*fields, _array_field("loss_spans", spans)) if spans is not None else tuple(fields)


def _media_fields(media: DecodedMedia | None) -> Iterator[Field]:
    """Fields of a batch that the media would make, for this sample alone."""
    if media is None:
        return
    pictures = [decoded for decoded in media.items if decoded.item.kind is not MediaKind.AUDIO]
    sounds = [decoded for decoded in media.items if decoded.item.kind is MediaKind.AUDIO]
    if pictures:
        yield _array_field("image_kind", np.array([decoded.item.kind for decoded in pictures], np.uint8))
        yield _array_field("grid_thw", np.array([decoded.item.grid for decoded in pictures], np.int32))
        yield _array_field("image_token_start", _starts(pictures))
        yield _array_field("pixel_values", np.concatenate([decoded.values for decoded in pictures]))
    if sounds:
        yield _array_field("audio_frames", np.array([decoded.item.grid[0] for decoded in sounds], np.int32))
        yield _array_field("audio_token_start", _starts(sounds))
        yield _array_field("audio_values", np.concatenate([decoded.values for decoded in sounds]))


def _starts(items: Sequence[Any]) -> np.ndarray:
    return np.array([decoded.item.token_start for decoded in items], np.int32)


def _array_field(name: str, array: np.ndarray) -> Field:
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return Field(name=name, dtype=str(array.dtype), shape=array.shape, digest=digest)


def _field_of_value(name: str, value: object) -> Field:
    """A raw value: bytes and text by length; lists of numbers as arrays; anything else by its JSON."""
    if isinstance(value, (list, np.ndarray)) and len(value) and np.asarray(value, dtype=object).ndim == 1:
        array = np.asarray(value)
        if array.dtype.kind in "iufb":
            return _array_field(name, array)
    is_text = isinstance(value, str)
    data = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass") if is_text else _json(value)
    dtype = "bytes" if isinstance(value, bytes) else "string" if is_text else "json"
    return Field(name=name, dtype=dtype, shape=(len(data),), digest=hashlib.sha256(data).hexdigest())


def _json(value: object) -> bytes:
    return json.dumps(value, default=str, sort_keys=True).encode()
