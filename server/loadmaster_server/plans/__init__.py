"""Plans: the loop that makes them, and the routes that hand them and their graphs out."""

from .counters import Counters
from .graph import GraphService
from .retention import Retention, RetentionRules
from .routes import plan_routes
from .service import PlanService
from .supervisor import PlanSupervisor

__all__ = [
    "Counters",
    "GraphService",
    "PlanService",
    "PlanSupervisor",
    "Retention",
    "RetentionRules",
    "plan_routes",
]
