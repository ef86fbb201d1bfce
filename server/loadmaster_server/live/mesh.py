"""Every rank of a stream: where it is, who serves it, how far it is, how long it waits, what it has to do."""

from __future__ import annotations

import numpy as np

from ..store import Store, StreamKey
from .ranks import NOBODY
from .scene import STATES, Scene, look, mean_waits, rank_states, rounded, skew_of
from .schemas import AxisView, MeshView, RankColumns
from .step_log import StepLog
from .watch import LiveWatch


class MeshModel:
    """Reads the mesh. Any thread may call it."""

    def __init__(self, store: Store, log: StepLog, watch: LiveWatch) -> None:
        self._store, self._log, self._watch = store, log, watch

    def read(self, key: StreamKey, window_s: float) -> MeshView:
        """All ranks of the newest generation; none before anyone joined.

        Raises:
            NotFoundError: No such run or stream.
        """
        scene = look(self._store, self._log, self._watch, key, window_s)
        mesh = scene.generation.mesh if scene.generation else {}
        ranks, wait_W = self._columns(scene)
        return MeshView(
            **scene.place,
            axes=[AxisView(name=name, size=size) for name, size in mesh.items()],
            ranks=ranks,
            skew=skew_of(scene, wait_W),
            window_s=scene.window_s,
            window_steps=scene.stretch.num_steps if scene.stretch else len(scene.numbers),
        )

    def _columns(self, scene: Scene) -> tuple[RankColumns, np.ndarray]:
        generation = scene.generation
        num = generation.world_size if generation else 0
        coords = scene.coords
        addresses = self._store.actors.constructors(generation.key) if generation else {}
        dp_W = coords.get("dp", np.zeros(num, np.int64))
        snapshot = self._watch.ranks.snapshot(generation.key, num) if generation else NOBODY
        wait_W = mean_waits(scene, snapshot)
        cost_W, tokens_W = _planned(scene, dp_W)
        columns = RankColumns(
            rank=list(range(num)),
            host=[snapshot.host.get(rank) for rank in range(num)],
            constructor=[addresses.get(dp) for dp in dp_W.tolist()],
            coords={axis: at.tolist() for axis, at in coords.items()},
            acknowledged=np.maximum(snapshot.acknowledged_W, generation.first_step if generation else 0).tolist(),
            seen_s=rounded(np.where(snapshot.is_heard_W, snapshot.seen_s_W, np.nan), 1),
            moved_s=rounded(np.where(snapshot.is_heard_W, snapshot.moved_s_W, np.nan), 1),
            wait_s=rounded(wait_W),
            last_wait_s=rounded(snapshot.last_wait_W),
            cost=rounded(cost_W),
            tokens=[None if value is None else round(value) for value in rounded(tokens_W, 0)],
            state=[STATES[at] for at in rank_states(scene, snapshot).tolist()],
        )
        return columns, wait_W


def _planned(scene: Scene, dp_W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean cost (over the mean of all) and tokens a step of each rank's dp rank, in the window's last steps."""
    unknown = np.full(len(dp_W), np.nan)
    cost_D, tokens_D = scene.planned or (None, None)
    return (unknown, unknown) if cost_D is None or tokens_D is None else (cost_D[dp_W], tokens_D[dp_W])
