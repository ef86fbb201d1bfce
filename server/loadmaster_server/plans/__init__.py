"""Plans: the loop that makes them, and the route that hands them out."""

from .routes import plan_routes
from .service import PlanService
from .supervisor import PlanSupervisor

__all__ = ["PlanService", "PlanSupervisor", "plan_routes"]
