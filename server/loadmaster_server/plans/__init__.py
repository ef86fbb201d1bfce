"""Plans: the loop that makes them, and the routes that hand them and their graphs out."""

from .graph import GraphService
from .routes import plan_routes
from .service import PlanService
from .supervisor import PlanSupervisor

__all__ = ["GraphService", "PlanService", "PlanSupervisor", "plan_routes"]
