"""What the console's screens read: how runs are now, and what changes."""

from .routes import live_routes
from .service import Around, LiveService
from .watch import LiveWatch

__all__ = ["Around", "LiveService", "LiveWatch", "live_routes"]
