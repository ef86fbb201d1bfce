"""Where processes come from. External ones just register with the planner."""

from .local import ClusterSize, LocalCluster
from .registering import register_run

__all__ = ["ClusterSize", "LocalCluster", "register_run"]
