"""The only place that knows SQL: models, migrations, and repositories that hand out frozen records."""

from .access import AccessRepository
from .access_records import AccessAction, Grant, Key, SessionRecord, TokenRecord
from .bulletin import ACTORS, Bulletin
from .database import Database, without_password
from .migration import revisions_of, upgrade
from .planner_lease import PlannerLease, acting_url
from .records import (
    ActorRecord,
    Definition,
    GenerationKey,
    GenerationRecord,
    GenerationState,
    LeaseKind,
    LeaseRecord,
    NewGeneration,
    PlannedStep,
    PlanRecord,
    SourceCounts,
    StepMembership,
    StreamKey,
    VerdictKind,
    VerdictRecord,
)
from .revisions import (
    Action,
    AuditRecord,
    Change,
    DraftRecord,
    Published,
    RevisionRecord,
    Room,
    ScheduledRecord,
    ScheduledState,
    SupersededError,
    Timeline,
)
from .store import Store

__all__ = [
    "ACTORS",
    "AccessAction",
    "AccessRepository",
    "Action",
    "ActorRecord",
    "AuditRecord",
    "Bulletin",
    "Change",
    "Database",
    "Definition",
    "DraftRecord",
    "GenerationKey",
    "GenerationRecord",
    "GenerationState",
    "Grant",
    "Key",
    "LeaseKind",
    "LeaseRecord",
    "NewGeneration",
    "PlanRecord",
    "PlannedStep",
    "PlannerLease",
    "Published",
    "RevisionRecord",
    "Room",
    "ScheduledRecord",
    "ScheduledState",
    "SessionRecord",
    "SourceCounts",
    "StepMembership",
    "Store",
    "StreamKey",
    "SupersededError",
    "Timeline",
    "TokenRecord",
    "VerdictKind",
    "VerdictRecord",
    "acting_url",
    "revisions_of",
    "upgrade",
    "without_password",
]
