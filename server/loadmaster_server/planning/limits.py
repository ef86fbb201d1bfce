"""Which samples are left out because they are longer than a step's pieces and are not cut.

# N = samples
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .columns import Int64Array
from .lists import Lists

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

    def left_out(self, tokens_N: Int64Array, patches: Lists) -> BoolArray | None:
        """Which samples are too long, bool (N,); None, which costs least: none is.

        Args:
            patches: Of N samples: those that have none have no media.
        """
        if not len(tokens_N) or (patches.is_nothing and self.text is None):
            return None
        text = _NO_LIMIT if self.text is None else self.text
        if tokens_N.max() <= (text if patches.is_nothing else min(text, self.media)):
            return None
        out_N = tokens_N > (text if patches.is_nothing else np.where(patches.has_N, self.media, text))
        return out_N if out_N.any() else None

    def reason(self, *, has_media: bool) -> str:
        """Why a sample that is too long is left out."""
        if has_media:
            return "longer than a microbatch, and media cannot be cut"
        return f"longer than {self.text} tokens, and over_long is skip"
