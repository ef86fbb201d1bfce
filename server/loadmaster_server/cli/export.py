"""`loadmaster export RUN --steps a:b --format mds|megatron OUT`: write steps of a run as files for other loaders.

RUN is the address of a planner, whose plans are written as they are: past steps that it still holds, and coming ones as
far as they are planned. Or it is a run spec: then the steps are planned here, any of them, with the same result as long
as no revision has changed the run. Either way the tokens are those that the ranks receive, in the order of steps and
microbatches. The sources are read from this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadmaster.cli.only_run import only_run
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.exporting import (
    ExportFormat,
    ExportReport,
    PlannedSteps,
    SpecSteps,
    StepRange,
    StepSource,
    export_steps,
)

from .axes import mesh_sizes
from .failures import failing_cleanly
from .opening import open_run

STATE_DIR = Path(".loadmaster")


@failing_cleanly("export")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command; returns the exit code."""
    args = _parser().parse_args(argv)
    with contextlib.closing(_source(args)) as source, _bar(args.steps) as on_step:
        report = export_steps(source, args.steps, args.out, args.format, on_step=on_step)
    if args.json:
        print(json.dumps(report.to_tree()))
    else:
        print("\n".join(_lines(report, args.out, args.steps)))
    return 0


def _source(args: argparse.Namespace) -> StepSource:
    if args.run.startswith(("http://", "https://")):
        if args.mesh:
            raise BadRequestError(
                "--mesh must be left out with a planner's address: its plans are for the mesh they have"
            )
        return PlannedSteps(
            args.run, args.name or _only(args), stream=args.stream, state_dir=args.state_dir, timeout_s=args.timeout_s
        )
    if not args.run.endswith((".yaml", ".yml")):
        raise BadRequestError(
            f"RUN must be https://host:port of a planner or the path of a .yaml spec, got {args.run!r}"
        )
    spec, manifests = open_run(Path(args.run))
    if args.name not in (None, spec.run):
        raise BadRequestError(f"--name must be the spec's {spec.run!r}, got {args.name!r}")
    return SpecSteps(spec, manifests, stream=args.stream, mesh=args.mesh, state_dir=args.state_dir)


def _only(args: argparse.Namespace) -> str:
    with contextlib.closing(PlannerClient(args.run, timeout_s=args.timeout_s)) as planner:
        return only_run(planner)


@contextlib.contextmanager
def _bar(steps: StepRange) -> Iterator[Callable[[int], None]]:
    """A bar over the steps on standard error, gone in the end; none where that is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("exporting steps", total=steps.last - steps.first)
        yield lambda step: bars.update(task, completed=step + 1 - steps.first)


def _lines(report: ExportReport, out: Path, wanted: StepRange) -> Iterator[str]:
    first, last = report.steps
    yield (
        f"{report.run}/{report.stream} steps {first} to {last - 1} are in {out} ({report.format}): "
        f"{report.num_microbatches:,} microbatches, {report.num_documents:,} documents, {report.num_tokens:,} tokens"
    )
    if last < wanted.last:
        yield f"the stream ends before step {last}"
    if report.bound is not None:
        yield f"steps from {report.bound} on are not bound yet: a revision or another mesh can still change them"


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="loadmaster export", description=__doc__, formatter_class=formatter)
    parser.add_argument("run", metavar="RUN", help="https://host:port of a planner, or the path of a run spec")
    parser.add_argument("out", metavar="OUT", type=Path, help="a new or empty folder")
    parser.add_argument("--steps", type=_steps, required=True, metavar="A:B", help="the steps from A up to B - 1")
    parser.add_argument("--format", type=ExportFormat, required=True, choices=list(ExportFormat), help="of the files")
    parser.add_argument("--name", metavar="RUN", help="name of the planner's run; by default the only one there is")
    parser.add_argument("--stream", default="train", help="train, or an evaluation pass")
    mesh = "the training mesh, which decides the order of microbatches; by default the spec's, dp 1 where it is auto"
    parser.add_argument("--mesh", type=mesh_sizes, metavar="dp=8,pp=2", help=f"with a run spec: {mesh}")
    state = "planner states of the spec's run and copies of compressed files (default .loadmaster)"
    parser.add_argument("--state-dir", type=Path, default=STATE_DIR, help=state)
    parser.add_argument("--json", action="store_true", help="print the report (export.json) as one JSON object")
    parser.add_argument("--timeout-s", type=float, default=30.0, help="how long the planner may take to answer")
    return parser


def _steps(text: str) -> StepRange:
    try:
        return StepRange.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
