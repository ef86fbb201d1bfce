"""What a process tells those who watch it: numbers for Prometheus, and a log of text or JSON lines."""

from .distribution import SECONDS, Distribution, Histogram
from .logs import LogFormat, configure_logging, log_fields
from .metrics import Kind, Metric, Readings
from .options import TelemetryOptions, add_log_options, add_metrics_options
from .serving import serving_metrics

__all__ = [
    "SECONDS",
    "Distribution",
    "Histogram",
    "Kind",
    "LogFormat",
    "Metric",
    "Readings",
    "TelemetryOptions",
    "add_log_options",
    "add_metrics_options",
    "configure_logging",
    "log_fields",
    "serving_metrics",
]
