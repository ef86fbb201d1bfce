"""Runs: creation, rendezvous of their ranks, and the ranks' tickets."""

from .joining import JoinService
from .routes import run_routes
from .service import RunService
from .tickets import TicketOffice

__all__ = ["JoinService", "RunService", "TicketOffice", "run_routes"]
