"""What a run is: its spec (pydantic models, YAML), and the frozen sources (manifests)."""

from .batch import BatchSpec, Layout, OverLong
from .loading import load_run_spec
from .manifest import ShardInfo, SourceManifest, UnitKind
from .media import AudioSpec, MediaSpec, OverMax, PixelType, VisionLayout, VisionSpec
from .mesh import MeshSpec
from .network import BackboneSpec, EncoderSpec, ModelSpec
from .revising import ScheduleSpec, least_row_len, revised, schedule_faults, schedule_of
from .run import BudgetSpec, EvaluationSpec, RunSpec, UntilSpec
from .schedule import Knot, Ramp, Shape
from .source import OnExhausted, SourceFormat, SourceSpec, TransformSpec

__all__ = [
    "AudioSpec",
    "BackboneSpec",
    "BatchSpec",
    "BudgetSpec",
    "EncoderSpec",
    "EvaluationSpec",
    "Knot",
    "Layout",
    "MediaSpec",
    "MeshSpec",
    "ModelSpec",
    "OnExhausted",
    "OverLong",
    "OverMax",
    "PixelType",
    "Ramp",
    "RunSpec",
    "ScheduleSpec",
    "Shape",
    "ShardInfo",
    "SourceFormat",
    "SourceManifest",
    "SourceSpec",
    "TransformSpec",
    "UnitKind",
    "UntilSpec",
    "VisionLayout",
    "VisionSpec",
    "least_row_len",
    "load_run_spec",
    "revised",
    "schedule_faults",
    "schedule_of",
]
