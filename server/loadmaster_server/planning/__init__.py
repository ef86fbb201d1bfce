"""Planning: which pieces a step holds (membership) and where they go (placement). Pure functions over arrays."""

from .demand import Demand, NeedMetadata
from .placement import PackedStep
from .planner import StreamPlanner, Unserved
from .state import PlannerState

__all__ = ["Demand", "NeedMetadata", "PackedStep", "PlannerState", "StreamPlanner", "Unserved"]
