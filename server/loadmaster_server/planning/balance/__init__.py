"""Balance of a step's frozen membership over ranks and microbatches; pure, deterministic to the byte."""

from __future__ import annotations

from .facade import COMPILE_FROM, balance, balance_padded, warm_up
from .result import Balanced

__all__ = ["COMPILE_FROM", "Balanced", "balance", "balance_padded", "warm_up"]
