"""The command `loadmaster`: what is not built in is found when it is called."""

from .commands import main

__all__ = ["main"]
