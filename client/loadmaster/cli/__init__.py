"""The command `loadmaster`: fetch and status are built in, what other packages bring is found when it is called."""

from .commands import main

__all__ = ["main"]
