"""Runs: creation, rendezvous of their ranks, and the ranks' tickets."""

from .joining import JoinService
from .presence import RankWatch
from .routes import run_routes
from .service import RunService
from .tickets import TicketOffice

__all__ = ["JoinService", "RankWatch", "RunService", "TicketOffice", "run_routes"]
