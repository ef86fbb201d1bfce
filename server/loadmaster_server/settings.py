"""The planner's one settings object: read at the entry point, passed down."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.tls import Tls, check_listening

from .access import AccessMode
from .plans import RetentionRules

STATE_DIR = ".loadmaster"
DATABASE_VARIABLE = "LOADMASTER_DATABASE_URL"
"""What `--database-url` is where it is not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """Where the planner listens, where it keeps its state, and how fast it notices that a process is gone.

    Attributes:
        host: Where to listen; beyond this machine with TLS and access `token` only.
        port: 0 takes a free one.
        state_dir: Folder of planner.db; made when it is missing.
        database_url: SQLAlchemy URL; empty: SQLite in `state_dir`.
        heartbeat_s: How often processes report.
        lease_s: A process that is silent for this long loses its leases.
        checkpoint_steps: Steps from one base checkpoint of a stream to the next.
        storage: Folder or URI for the bodies of old plans; empty: `segments` in `state_dir`.
        retention: What of the plan log stays in SQL, and what at all.
        planner_lease_s: A planner that is silent for this long gives way to one that stands by.
        access: What somebody may do who has not said who they are.
        tls: To serve with, and to call loaders and constructors with.

    Raises:
        BadRequestError: A value is out of its range; names the field.
    """

    host: str = "127.0.0.1"
    port: int = 0
    state_dir: Path = Path(STATE_DIR)
    database_url: str = ""
    heartbeat_s: float = 0.5
    lease_s: float = 5.0
    checkpoint_steps: int = 8
    storage: str = ""
    retention: RetentionRules = field(default_factory=RetentionRules)
    planner_lease_s: float = 5.0
    access: AccessMode = AccessMode.OFF
    tls: Tls = field(default_factory=Tls)

    def __post_init__(self) -> None:
        check_listening(self.host, self.tls, needs="--access token", is_met=self.access is AccessMode.TOKEN)
        if not 0 <= self.port < 1 << 16:
            raise BadRequestError(f"port must be in [0, 65536), got {self.port}")
        if self.heartbeat_s <= 0:
            raise BadRequestError(f"heartbeat_s must be positive, got {self.heartbeat_s}")
        if self.lease_s < 2 * self.heartbeat_s:
            raise BadRequestError(f"lease_s must be at least two heartbeats ({self.heartbeat_s} s), got {self.lease_s}")
        if self.planner_lease_s <= 0:
            raise BadRequestError(f"planner_lease_s must be positive, got {self.planner_lease_s}")
        if self.checkpoint_steps < 1:
            raise BadRequestError(f"checkpoint_steps must be at least 1, got {self.checkpoint_steps}")

    @property
    def store_url(self) -> str:
        """SQLAlchemy URL of the store."""
        return self.database_url or f"sqlite:///{(self.state_dir / 'planner.db').absolute()}"

    @property
    def storage_uri(self) -> str:
        """Where the bodies of old plans go."""
        return self.storage or str((self.state_dir / "segments").absolute())
