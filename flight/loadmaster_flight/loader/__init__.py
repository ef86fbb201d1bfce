"""The Source Loader: reads and measures rows ahead, keeps them, and serves the samples that plans name."""

from .engine import LoaderEngine
from .process import LoaderProcess
from .service import LoaderService

__all__ = ["LoaderEngine", "LoaderProcess", "LoaderService"]
