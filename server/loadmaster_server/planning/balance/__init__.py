"""Balance of a step's frozen membership over ranks and microbatches; pure, deterministic to the byte."""

from __future__ import annotations

from .facade import balance, balance_padded, warm_up
from .result import Balanced

__all__ = ["Balanced", "balance", "balance_padded", "warm_up"]
