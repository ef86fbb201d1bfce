"""Which samples are left out because they are longer than a step's pieces and are not cut.

# N = samples
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .columns import Int64Array, ObjectArray, is_nothing

BoolArray = npt.NDArray[np.bool_]
_NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthLimits:
    """Most tokens of a sample that is served.

    Attributes:
        text: Of a sample without media; None: longer ones are cut.
        media: Of a sample with media, which is never cut.
    """

    text: int | None
    media: int

    def left_out(self, tokens_N: Int64Array, patches_N: ObjectArray) -> BoolArray | None:
        """Which samples are too long, bool (N,); None, which costs least: none is.

        Args:
            patches_N: Shape (N,), objects: None for samples without media.
        """
        has_no_media = is_nothing(patches_N)
        if not len(tokens_N) or (has_no_media and self.text is None):
            return None
        text = _NO_LIMIT if self.text is None else self.text
        least = text if has_no_media else min(text, self.media)
        if tokens_N.max() <= least:
            return None
        out_N = tokens_N > least
        if not has_no_media:
            at_M = np.flatnonzero(out_N)
            limit_M = [text if patches_N[i] is None else self.media for i in at_M.tolist()]
            out_N[at_M] = tokens_N[at_M] > np.array(limit_M, np.int64)
        return out_N if out_N.any() else None

    def reason(self, *, has_media: bool) -> str:
        """Why a sample that is too long is left out."""
        if has_media:
            return "longer than a microbatch, and media cannot be cut"
        return f"longer than {self.text} tokens, and over_long is skip"
