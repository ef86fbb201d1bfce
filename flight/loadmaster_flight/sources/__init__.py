"""Where samples come from: frozen shard lists, the order of their rows, and one reader a format."""

from .blocks import Block, EndOfShardError, FaultBlock, Projection, RowFault
from .cache import BlockCache, BlockKey
from .hashing import fold, fold_array, name_key
from .inventory import check_unchanged, freeze_source
from .lanes import LanePath, LaneReader, LaneRows, LaneStretch
from .media_files import MediaFiles
from .order import Unit, block_sequence, lane_units, row_order
from .reader import SourceReader
from .survey import Survey, survey_source

__all__ = [
    "Block",
    "BlockCache",
    "BlockKey",
    "EndOfShardError",
    "FaultBlock",
    "LanePath",
    "LaneReader",
    "LaneRows",
    "LaneStretch",
    "MediaFiles",
    "Projection",
    "RowFault",
    "SourceReader",
    "Survey",
    "Unit",
    "block_sequence",
    "check_unchanged",
    "fold",
    "fold_array",
    "freeze_source",
    "lane_units",
    "name_key",
    "row_order",
    "survey_source",
]
