"""Planning: which pieces a step holds (membership) and where they go (placement). Pure functions over arrays."""

from .demand import Demand, NeedMetadata
from .dgraph import DGraph
from .place_tree import ClientPlaceTree
from .planner import StreamPlanner, Unserved
from .primitives import Placement
from .state import PlannerState

__all__ = [
    "ClientPlaceTree",
    "DGraph",
    "Demand",
    "NeedMetadata",
    "Placement",
    "PlannerState",
    "StreamPlanner",
    "Unserved",
]
