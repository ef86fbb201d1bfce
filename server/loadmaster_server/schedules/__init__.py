"""The schedule of a run while it trains: drafts, revisions, merges of both, and what a revision would do."""

from .routes import schedule_routes
from .service import ScheduleService

__all__ = ["ScheduleService", "schedule_routes"]
