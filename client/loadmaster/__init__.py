"""Loadmaster's training side: connect a rank to a run and iterate over its batches."""

from loadmaster_flight.wire.errors import LoadmasterError

from .batch import Batch, Microbatch
from .broadcasting import broadcast
from .connecting import connect
from .documents import Documents
from .stream import Stream, StreamStats

__all__ = ["Batch", "Documents", "LoadmasterError", "Microbatch", "Stream", "StreamStats", "broadcast", "connect"]
