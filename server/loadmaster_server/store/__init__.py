"""The only place that knows SQL: models, migrations, and repositories that hand out frozen records."""

from .bulletin import ACTORS, Bulletin
from .database import Database
from .migration import upgrade
from .planner_lease import PlannerLease
from .records import (
    ActorRecord,
    Definition,
    GenerationKey,
    GenerationRecord,
    GenerationState,
    LeaseKind,
    LeaseRecord,
    NewGeneration,
    PlanRecord,
    SourceCounts,
    StepMembership,
    StreamKey,
    VerdictKind,
    VerdictRecord,
)
from .store import Store

__all__ = [
    "ACTORS",
    "ActorRecord",
    "Bulletin",
    "Database",
    "Definition",
    "GenerationKey",
    "GenerationRecord",
    "GenerationState",
    "LeaseKind",
    "LeaseRecord",
    "NewGeneration",
    "PlanRecord",
    "PlannerLease",
    "SourceCounts",
    "StepMembership",
    "Store",
    "StreamKey",
    "VerdictKind",
    "VerdictRecord",
    "upgrade",
]
