"""The steps of a simulated run, added up.

# S = sources
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from loadmaster_flight.spec import RunSpec
from loadmaster_server.planning.simulation import (
    Against,
    HostMemory,
    Mesh,
    SimulatedStep,
    Stepper,
    Timing,
    host_memory,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """What was simulated.

    Attributes:
        flops: FLOP/s of a device, which makes seconds of FLOPs.
        lengths: Where the documents' lengths are from, if not all from the sources.
    """

    spec: RunSpec
    mesh: Mesh
    steps: list[SimulatedStep]
    stepper: Stepper
    flops: float
    lengths: str | None

    def seconds(self, timing: Timing) -> float:
        return timing.time / self.flops

    def mean(self, value: Callable[[SimulatedStep], float]) -> float:
        """Mean over the steps."""
        return statistics.fmean(value(step) for step in self.steps)

    def worst(self, value: Callable[[SimulatedStep], float]) -> float:
        """Greatest of the steps."""
        return max(value(step) for step in self.steps)

    def others(self) -> Iterator[tuple[Against, int, float, float]]:
        """Name, number of full steps, mean seconds and efficiency of each loader that had one step at least."""
        for name in self.steps[0].against:
            timings = [timing for step in self.steps for timing in step.against[name]]
            if timings:
                mean_s = statistics.fmean(self.seconds(timing) for timing in timings)
                yield name, len(timings), mean_s, _efficiency(timings)

    def seconds_for_same_work(self, efficiency: float) -> float:
        """Mean seconds that a loader of another efficiency takes for what these steps hold."""
        return self.mean(lambda step: step.timing.useful) / efficiency / self.flops

    @property
    def efficiency(self) -> float:
        """Useful over all device time of all steps."""
        return _efficiency([step.timing for step in self.steps])

    def sources(self) -> list[dict[str, Any]]:
        """Tokens, epochs and shuffle quality by source."""
        state = self.stepper.planner.state()
        total = sum(state.placed_tokens_S) or 1
        shares_S = [statistics.fmean(shares) for shares in zip(*(step.shares_S for step in self.steps), strict=True)]
        return [
            {
                "source": name,
                "tokens": tokens,
                "share": tokens / total,
                "weight": weight,
                "epoch": source.epoch,
                "rows": source.num_rows,
                "lanes": quality.lanes,
                "effective_blocks": quality.effective_blocks,
                "blocks": quality.num_blocks,
                "shuffle_quality": quality.share_of_perfect,
            }
            for name, tokens, weight, source, quality in zip(
                self.spec.source_names,
                state.placed_tokens_S,
                shares_S,
                state.sources,
                self.stepper.shuffle_S,
                strict=True,
            )
        ]

    def memory(self) -> HostMemory:
        """Of data, by role."""
        blocks = [
            (quality.lanes, source.block_bytes)
            for quality, source in zip(self.stepper.shuffle_S, self.spec.sources.values(), strict=True)
        ]
        return host_memory(
            self.spec.batch,
            self.spec.budgets,
            pieces_per_step=self.mean(lambda step: step.num_pieces),
            blocks=blocks,
            step=self.steps[-1].step,
            dp=self.mesh.dp,
            cp=self.mesh.cp,
        )

    def to_tree(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "run": self.spec.run,
            "mesh": asdict(self.mesh),
            "strategy": self.spec.strategy,
            "lengths": self.lengths,
            "flops_per_device": self.flops,
            "mean_step_s": self.mean(lambda step: self.seconds(step.timing)),
            "efficiency": self.efficiency,
            "bubble_limit": self.mean(lambda step: step.limit),
            "against": {
                name: {"steps": num, "mean_step_s": mean_s, "efficiency": eff, "speedup": self.efficiency / eff}
                for name, num, mean_s, eff in self.others()
            },
            "steps": [self._step_tree(step) for step in self.steps],
            "sources": self.sources(),
            "host_memory": self.memory().to_tree(),
        }

    def _step_tree(self, step: SimulatedStep) -> dict[str, Any]:
        names = ("step", "num_pieces", "num_tokens", "fill", "occupancy", "method")
        tree: dict[str, Any] = {name: getattr(step, name) for name in names}
        tree |= {"queued": step.queued, "queued_tokens": step.queued_tokens, "oldest_age": step.oldest_age}
        tree |= {"step_s": self.seconds(step.timing), "efficiency": step.timing.efficiency, "bubble_limit": step.limit}
        tree["images"] = None if step.encoding is None else asdict(step.encoding)
        return tree | asdict(step.evenness)


def _efficiency(timings: list[Timing]) -> float:
    return sum(timing.useful for timing in timings) / sum(timing.time for timing in timings)
