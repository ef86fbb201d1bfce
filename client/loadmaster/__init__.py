"""Loadmaster's training side: connect a rank to a run and iterate over its batches."""

from loadmaster_flight.wire.errors import LoadmasterError

from . import encoder, vision
from .batch import Batch, Microbatch
from .broadcasting import broadcast
from .clips import Clips
from .connecting import connect
from .documents import Documents
from .images import Images
from .stream import Stream, StreamStats

__all__ = [
    "Batch",
    "Clips",
    "Documents",
    "Images",
    "LoadmasterError",
    "Microbatch",
    "Stream",
    "StreamStats",
    "broadcast",
    "connect",
    "encoder",
    "vision",
]
