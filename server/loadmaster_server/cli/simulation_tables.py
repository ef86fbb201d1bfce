"""Tables of a simulated run, for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from loadmaster_server.planning.simulation import SimulatedStep

from .simulated_run import SimulatedRun

MOST_STEPS = 10
"""Steps that the table shows; --json has all."""


def run_tables(run: SimulatedRun) -> Iterator[Table | str]:
    """All tables of a run, with the lines between them."""
    mesh, flops = run.mesh, f"{run.flops / 1e12:g} TFLOP/s"
    axes = ", ".join(f"{axis} {getattr(mesh, axis)}" for axis in ("dp", "pp", "cp", "tp"))
    data = f"lengths {run.lengths}" if run.lengths else "lengths measured from the sources"
    shape = f"G {run.spec.batch.num_bins_at(run.steps[-1].step)}, C {run.spec.batch.capacity_at(run.steps[-1].step)}"
    yield f"run {run.spec.run}: {axes} ({mesh.world_size} devices), {shape}, strategy {run.spec.strategy}; {data}"
    yield f"simulated: exact 1F1B over FLOPs at {flops} a device, no communication; planned by the real planner"
    yield _step_table(run)
    yield from _image_lines(run)
    yield _loader_table(run)
    yield _source_table(run)
    yield _memory_table(run)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    return table


def _step_table(run: SimulatedRun) -> Table:
    table = _table(
        "steps", "step", "time s", "of limit", "rank max/mean (bound)", "microbatch max/mean (bound)", "fill",
        "occupancy", "queued", "age",
    )  # fmt: skip
    shown = run.steps if len(run.steps) <= MOST_STEPS else run.steps[: MOST_STEPS // 2] + run.steps[-MOST_STEPS // 2 :]
    for step in shown:
        table.add_row(str(step.step), *_step_cells(run, [step]))
    table.add_section()
    table.add_row("mean", *_step_cells(run, run.steps))
    return table


def _step_cells(run: SimulatedRun, steps: list[SimulatedStep]) -> list[str]:
    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    even = [step.evenness for step in steps]
    rank = mean([e.rank_max_over_mean for e in even]), mean([e.rank_bound for e in even])
    bins = mean([e.microbatch_max_over_mean for e in even]), mean([e.microbatch_bound for e in even])
    return [
        f"{mean([run.seconds(step.timing) for step in steps]):.4g}",
        f"{mean([step.timing.efficiency / step.limit for step in steps]):.1%}",
        f"{rank[0]:.4f} ({rank[1]:.4f})",
        f"{bins[0]:.3f} ({bins[1]:.3f})",
        f"{mean([step.fill for step in steps]):.2%}",
        f"{mean([step.occupancy for step in steps]):.2%}",
        f"{mean([float(step.queued) for step in steps]):,.0f}",
        f"{max(step.oldest_age for step in steps)}",
    ]


def _image_lines(run: SimulatedRun) -> Iterator[str]:
    """What the encoder does in a mean step; none in a run without images."""
    steps = [step.encoding for step in run.steps if step.encoding is not None]
    if steps:
        images, patches, planned, bound, at_home = (
            sum(getattr(step, name) for step in steps) / len(steps)
            for name in ("num_images", "num_patches", "max_over_mean", "bound", "at_home")
        )
        yield (
            f"encoder, mean step: {images:,.0f} images of {patches:,.0f} patches; rank max/mean {planned:.3f} (bound "
            f"{bound:.3f}) over the indexes of microbatches, {at_home:.3f} with images where their documents are"
        )


def _loader_table(run: SimulatedRun) -> Table:
    table = _table("mean step and efficiency (useful over all device time)", "loader", "steps", "step s", "efficiency",
                   "Loadmaster is faster by")  # fmt: skip
    limit = run.mean(lambda step: step.limit)
    table.add_row("bubble limit", "", "", f"{limit:.1%}", f"{run.efficiency / limit:.2f} x")
    mean_s = run.mean(lambda step: run.seconds(step.timing))
    table.add_row(f"Loadmaster, {run.spec.strategy}", str(len(run.steps)), f"{mean_s:.4g}", f"{run.efficiency:.1%}", "")
    for name, num, seconds, efficiency in run.others():
        table.add_row(name, str(num), f"{seconds:.4g}", f"{efficiency:.1%}", f"{run.efficiency / efficiency:.2f} x")
    return table


def _source_table(run: SimulatedRun) -> Table:
    table = _table("sources", "source", "tokens", "share", "weight", "epoch", "lanes", "blocks mixed in a step",
                   "of a perfect shuffle")  # fmt: skip
    for source in run.sources():
        mixed, quality = source["effective_blocks"], source["shuffle_quality"]
        table.add_row(
            source["source"], f"{source['tokens']:,}", f"{source['share']:.2%}", f"{source['weight']:.2%}",
            str(source["epoch"]), str(source["lanes"]), "" if mixed is None else f"{mixed:.1f}",
            "" if quality is None else f"{quality:.0%} of {source['blocks']}",
        )  # fmt: skip
    return table


def _memory_table(run: SimulatedRun) -> Table:
    memory = run.memory()
    table = _table("host memory for data, estimated", "role", "MB")
    for role, size_bytes in (
        ("planner", memory.planner),
        ("loaders, all together: open blocks and one window", memory.loaders),
        ("constructor, each", memory.constructor),
        ("trainer, each rank", memory.trainer_rank),
    ):
        table.add_row(role, f"{size_bytes / 1e6:,.1f}")
    return table
