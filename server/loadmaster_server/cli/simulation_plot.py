"""A picture of a simulated run; the only user of matplotlib, which the extra `plot` brings."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from loadmaster_flight.wire.errors import BadRequestError

from .simulated_run import SimulatedRun


def check_plot(path: Path) -> None:
    """Check before the work that the plot can be drawn.

    Raises:
        BadRequestError: matplotlib is missing, or there is no such folder.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise BadRequestError('--plot needs matplotlib, which is missing: pip install "loadmaster[plot]"')
    if not path.absolute().parent.is_dir():
        raise BadRequestError(f"--plot must be in a folder that is there, got {path}")


def plot_run(run: SimulatedRun, path: Path) -> None:
    """Draw step times and evenness over the steps into a file; its ending decides the format."""
    figure_class = importlib.import_module("matplotlib.figure").Figure
    figure = figure_class(figsize=(9, 7), layout="constrained")
    times, evenness = figure.subplots(2, 1, sharex=True)
    _draw_times(times, run)
    _draw_evenness(evenness, run)
    for axes in (times, evenness):
        axes.legend(loc="upper right")
    figure.savefig(path)


def _draw_times(axes: Any, run: SimulatedRun) -> None:
    """Other loaders' steps hold less or more: their lines are the time that they take for the same work."""
    at = [step.step for step in run.steps]
    axes.plot(at, [run.seconds(step.timing) for step in run.steps], label=f"Loadmaster, {run.spec.strategy}")
    limits = [step.timing.useful / step.limit / run.flops for step in run.steps]
    axes.plot(at, limits, linestyle="--", label="bubble limit")
    for i, (name, _, _, efficiency) in enumerate(run.others()):
        same = run.seconds_for_same_work(efficiency)
        axes.axhline(same, linestyle=":", label=f"{name}, mean for the same work", color=f"C{i + 2}")
    axes.set_ylabel("step time, s")
    axes.set_title(f"{run.spec.run}: dp {run.mesh.dp}, pp {run.mesh.pp}, cp {run.mesh.cp}, tp {run.mesh.tp}")
    axes.set_ylim(bottom=0)


def _draw_evenness(axes: Any, run: SimulatedRun) -> None:
    """Bounds are wide and pale, so that a line that lies on its bound is seen with it."""
    at = [step.step for step in run.steps]
    for i, level in enumerate(("rank", "microbatch")):
        bounds = [getattr(step.evenness, f"{level}_bound") for step in run.steps]
        found = [getattr(step.evenness, f"{level}_max_over_mean") for step in run.steps]
        axes.plot(at, bounds, color=f"C{i}", linewidth=5, alpha=0.3, label=f"{level}, lower bound")
        axes.plot(at, found, color=f"C{i}", label=level)
    axes.set_ylabel("costliest over mean")
    axes.set_xlabel("step")
