"""Steps of a run as files that other loaders read: a way out."""

from .folder import new_folder
from .mds import MdsWriter
from .megatron import IndexedWriter
from .steps import BuiltStep, PlannedSteps, SpecSteps, StepSource
from .writing import ExportFormat, ExportReport, StepRange, export_steps

__all__ = [
    "BuiltStep",
    "ExportFormat",
    "ExportReport",
    "IndexedWriter",
    "MdsWriter",
    "PlannedSteps",
    "SpecSteps",
    "StepRange",
    "StepSource",
    "export_steps",
    "new_folder",
]
