"""Actors: who is alive, who owns what, and what all ranks have acknowledged."""

from .placement import place_dp_ranks, place_partitions
from .routes import actor_routes
from .service import ActorService

__all__ = ["ActorService", "actor_routes", "place_dp_ranks", "place_partitions"]
