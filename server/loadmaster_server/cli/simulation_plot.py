"""A picture of a simulated run; the only user of matplotlib, which the extra `plot` brings."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

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
    at = [step.step for step in run.steps]
    times.plot(at, [run.seconds(step.timing) for step in run.steps], label=f"Loadmaster, {run.spec.strategy}")
    limits = [step.timing.useful / step.limit / run.flops for step in run.steps]
    times.plot(at, limits, linestyle="--", label="bubble limit")
    for i, (name, _, mean_s, _) in enumerate(run.others()):
        times.axhline(mean_s, linestyle=":", label=f"{name}, mean", color=f"C{i + 2}")
    times.set_ylabel("step time, s")
    for i, level in enumerate(("rank", "microbatch")):
        found = [getattr(step.evenness, f"{level}_max_over_mean") for step in run.steps]
        bounds = [getattr(step.evenness, f"{level}_bound") for step in run.steps]
        evenness.plot(at, found, color=f"C{i}", label=level)
        evenness.plot(at, bounds, color=f"C{i}", linestyle="--", label=f"{level}, lower bound")
    evenness.set_ylabel("costliest over mean")
    evenness.set_xlabel("step")
    times.set_ylim(bottom=0)
    for axes in (times, evenness):
        axes.legend()
    figure.savefig(path)
