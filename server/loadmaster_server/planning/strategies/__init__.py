"""Strategies: how a step's frozen membership is placed on the mesh. Pure functions of a DGraph."""

from .built_in import bins_by_cost, llm_balance, long_short_context, sequential, vlm_hybrid
from .loading import BUILT_IN, Strategy, load_strategy

__all__ = [
    "BUILT_IN",
    "Strategy",
    "bins_by_cost",
    "llm_balance",
    "load_strategy",
    "long_short_context",
    "sequential",
    "vlm_hybrid",
]
