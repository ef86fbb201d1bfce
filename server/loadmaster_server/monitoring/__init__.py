"""What the planner tells Prometheus: streams, ranks, sources, the plan log, and who is alive."""

from .collecting import PlannerCollector, Seen
from .definitions import METRICS
from .routes import metrics_routes

__all__ = ["METRICS", "PlannerCollector", "Seen", "metrics_routes"]
