"""`loadmaster simulate RUN.yaml --mesh dp=512,pp=4`: plan a run's steps on a mesh that this machine does not have.

The planner is the real one, on metadata measured from the run's sources, or on document lengths that are stated. What
a step takes is computed: an exact simulation of the 1F1B pipeline over FLOPs. It knows no communication, no kernel
that is slow on short documents and no memory limit but the tokens of a microbatch; trust ratios, not seconds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from loadmaster_flight.spec import Knot, Ramp, RunSpec, load_run_spec
from loadmaster_flight.wire.errors import BadRequestError, LoadmasterError
from loadmaster_server.planning.simulation import Against, Lengths, Mesh, SimulatedStep, Stepper

from .axes import mesh_sizes
from .check import TABLE_WIDTH
from .failures import failing_cleanly, with_lines
from .opening import freeze_all, source_bars
from .simulated_metadata import simulated_metadata
from .simulated_run import SimulatedRun
from .simulation_plot import check_plot, plot_run
from .simulation_tables import run_tables

SUSTAINED_FLOPS = 4e14


@failing_cleanly("simulate")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command; returns the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.rows and args.lengths:
        parser.error("--rows measures lengths and --lengths states them: give one of the two")
    if args.plot is not None:
        check_plot(args.plot)
    spec = _on_mesh(load_run_spec(args.run), args)
    try:
        run = _simulate(spec, args)
    except LoadmasterError as error:
        raise with_lines(error, Path(args.run)) from error
    if args.plot is not None:
        plot_run(run, args.plot)
    if args.json:
        print(json.dumps(run.to_tree()))
    else:
        console = Console()
        console = console if console.is_terminal else Console(width=TABLE_WIDTH)
        console.print(*run_tables(run), sep="\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="loadmaster simulate", description=__doc__, formatter_class=formatter)
    parser.add_argument("run", metavar="RUN.yaml", help="the run spec")
    parser.add_argument("--mesh", type=mesh_sizes, required=True, metavar="dp=512,pp=4", help="axes, slowest first")
    parser.add_argument("--steps", type=_positive, default=50, help="steps to plan (default 50)")
    parser.add_argument("--microbatches", type=_positive, metavar="G", help="of a step, instead of the spec's")
    parser.add_argument("--seq-len", type=_positive, metavar="C", help="instead of the spec's")
    parser.add_argument("--strategy", help="instead of the spec's")
    against = ", ".join(Against)
    parser.add_argument("--against", type=_against, default=(), metavar="A,B", help=f"other loaders: {against}")
    lengths = "documents of every source, instead of its data: lognormal:700,1.2, pareto:1.15,400 or bimodal"
    parser.add_argument("--lengths", type=_lengths, help=lengths)
    rows = "measure N rows of each source and draw all documents from them; by default all that the steps need"
    parser.add_argument("--rows", type=_positive, metavar="N", help=rows)
    flops = "FLOP/s that a device sustains (default 4e14); ratios do not depend on it"
    parser.add_argument("--flops", type=_positive_float, default=SUSTAINED_FLOPS, help=flops)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the steps; needs matplotlib")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _positive_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def _against(text: str) -> tuple[Against, ...]:
    names = text.split(",")
    for name in names:
        if name not in list(Against):
            raise argparse.ArgumentTypeError(f"must name loaders of {', '.join(Against)}, got {name!r}")
    return tuple(Against(name) for name in dict.fromkeys(names))


def _lengths(text: str) -> Lengths:
    try:
        return Lengths.parse(text)
    except BadRequestError as error:
        raise argparse.ArgumentTypeError(error.message) from error


def _on_mesh(spec: RunSpec, args: argparse.Namespace) -> RunSpec:
    """The spec with what the command line says; G is rounded up to a multiple of dp, wherever it changes."""
    tree, dp = spec.to_tree(), args.mesh.get("dp", 1)
    if args.strategy:
        tree["strategy"] = args.strategy
    if args.seq_len:
        tree["batch"]["seq_len"] = args.seq_len
    ramp = Ramp(knots=(Knot(at=0, value=args.microbatches),)) if args.microbatches else spec.batch.microbatches
    knots = [knot.model_dump(mode="json") | {"value": -(-int(knot.value) // dp) * dp} for knot in ramp.knots]
    tree["batch"] |= {"microbatches": knots, "g_multiple": dp}
    tree.get("mesh", {}).pop("speed", None)  # of the ranks of the spec's own mesh
    return RunSpec.model_validate(tree)


def _simulate(spec: RunSpec, args: argparse.Namespace) -> SimulatedRun:
    with (
        source_bars() as bars,
        simulated_metadata(spec, lambda: freeze_all(spec, bars), lengths=args.lengths, rows=args.rows) as metadata,
    ):
        measure, lanes, num_blocks = metadata
        stepper = Stepper(spec, args.mesh, lanes, measure, against=args.against, num_blocks=num_blocks)
        task = bars.add_task("planning steps", total=args.steps)
        steps: list[SimulatedStep] = []
        for step in stepper.steps(args.steps):
            steps.append(step)
            bars.advance(task)
    return SimulatedRun(
        spec=spec, mesh=Mesh(**args.mesh), steps=steps, stepper=stepper, flops=args.flops, lengths=_origin(args)
    )


def _origin(args: argparse.Namespace) -> str | None:
    """Where lengths are from that the sources do not have in full."""
    if args.rows:
        return f"drawn from {args.rows} measured rows of each source"
    return args.lengths.name if args.lengths else None
