"""What measuring a block's rows yields.

# N = rows, T = tokens of all rows together, n = tokens of one row, K = units of one row that are wanted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..wire.media import MediaItem
from ..wire.schemas import Verdict

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
UInt8Array = npt.NDArray[np.uint8]

_NOTHING = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMedia:
    """The media of one row, never their bytes.

    Attributes:
        items: In the order of the document.
        patches: Patches of each unit (see `wire.media`), in order; empty where the media are audio alone.
        size_bytes: Pixels and audio when they are decoded.
    """

    items: tuple[MediaItem, ...]
    patches: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaBuffers:
    """What is wanted of a row's media, and where it goes.

    Attributes:
        units_K: Int64 (K,), units of the row, ascending.
        pixels: Uint8, 1-dimensional: exactly the bytes of these units, one after the other; written to.
        audio: Uint8, 1-dimensional: exactly the bytes of all audio of the row, written to; empty: it is not wanted.
    """

    units_K: Int64Array
    pixels: UInt8Array
    audio: UInt8Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One row, measured.

    Attributes:
        reason: Why the row is not OK, a short string that is the same every time; None for OK.
        ids_n: Shape (n,), int32 token ids, special tokens included; empty unless OK.
        spans: Flat [start, stop) pairs of the target tokens that count, int32; None: all of them.
        media: The row's images, videos and audio.
    """

    verdict: Verdict
    reason: str | None = None
    ids_n: Int32Array = field(default_factory=lambda: _NOTHING)
    spans: Int32Array | None = None
    media: SampleMedia | None = None


def skipped(reason: str) -> Outcome:
    """A row that is left out on purpose."""
    return Outcome(verdict=Verdict.SKIPPED, reason=reason)


def bad(reason: str) -> Outcome:
    """A row whose content cannot be used."""
    return Outcome(verdict=Verdict.BAD, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Rows of one block, measured, as flat arrays in the order in which the rows were asked for.

    Attributes:
        verdict: Shape (N,), uint8, values of `Verdict`.
        reason: Per row, why it is not OK; None for OK rows.
        tokens: Shape (T,), int32, the OK rows' token ids one after the other.
        offsets: Shape (N + 1,), int64: row i has tokens[offsets[i] : offsets[i + 1]].
        loss_spans: Per row flat [start, stop) pairs of target token indexes, int32, or None for all of them;
            None altogether where no row has any.
        size_bytes: Shape (N,), int64, what the row's tokens, spans, pixels and audio take in memory.
        media: Per row its images, videos and audio, or None; None altogether where no row has any.
    """

    verdict: UInt8Array
    reason: list[str | None]
    tokens: Int32Array
    offsets: Int64Array
    loss_spans: list[Int32Array | None] | None
    size_bytes: Int64Array
    media: list[SampleMedia | None] | None = None

    def __len__(self) -> int:
        return len(self.verdict)

    def row_tokens(self, index: int) -> Int32Array:
        """Token ids of a row, int32 (n,): a view."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    @staticmethod
    def gather(outcomes: Sequence[Outcome]) -> Measured:
        """Lay the rows' outcomes out flat."""
        ids = [outcome.ids_n for outcome in outcomes]
        length_N = np.array([len(ids_n) for ids_n in ids], np.int64)
        spans = [outcome.spans for outcome in outcomes]
        span_bytes_N = np.array([0 if s is None else s.nbytes for s in spans], np.int64)
        media = [outcome.media for outcome in outcomes]
        media_bytes_N = np.array([0 if m is None else m.size_bytes for m in media], np.int64)
        return Measured(
            verdict=np.array([outcome.verdict for outcome in outcomes], np.uint8),
            reason=[outcome.reason for outcome in outcomes],
            tokens=np.concatenate([_NOTHING, *ids]),
            offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(length_N)]),
            loss_spans=spans if any(s is not None for s in spans) else None,
            size_bytes=length_N * 4 + span_bytes_N + media_bytes_N,
            media=media if any(m is not None for m in media) else None,
        )
