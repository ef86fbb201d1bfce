"""A whole run in one process, without services: for notebooks, and the reference for every distributed run."""

from .connecting import connect
from .run import EmbeddedRun

__all__ = ["EmbeddedRun", "connect"]
