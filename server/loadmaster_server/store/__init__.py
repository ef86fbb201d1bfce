"""The only place that knows SQL: models, migrations, and repositories that hand out frozen records."""

from .bulletin import ACTORS, Bulletin
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
    "Definition",
    "GenerationKey",
    "GenerationRecord",
    "GenerationState",
    "LeaseKind",
    "LeaseRecord",
    "NewGeneration",
    "PlanRecord",
    "SourceCounts",
    "StepMembership",
    "Store",
    "StreamKey",
    "VerdictKind",
    "VerdictRecord",
]
