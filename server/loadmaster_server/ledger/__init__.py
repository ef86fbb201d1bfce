"""The ledger: what is in a step and why, whether every piece was delivered exactly once, where two runs part."""

from .routes import ledger_routes
from .service import LedgerService

__all__ = ["LedgerService", "ledger_routes"]
