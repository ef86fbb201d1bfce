"""Where processes come from. External ones just register with the planner."""

from .local import ClusterSize, LocalCluster

__all__ = ["ClusterSize", "LocalCluster"]
