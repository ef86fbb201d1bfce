"""`loadmaster check RUN.yaml`: validate a run spec, open every source, print what is there."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from loadmaster_flight.spec import RunSpec, load_run_spec
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_server.planning.rehearsal import rehearse

from .failures import failing_cleanly, with_lines
from .opening import SourceBar, freeze_all, source_bars
from .soundness import warnings_of
from .stock import SourceStock, stock_table, take_stock

WARNED = 1
TABLE_WIDTH = 120
"""Where the output is not a terminal, whose width would do."""


@failing_cleanly("check")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command.

    Returns:
        0 when the run can be created, 1 with --strict when there are warnings, 2 when it cannot.
    """
    args = _parser().parse_args(argv)
    path = Path(args.run)
    try:
        return _check(path, is_json=args.json, is_strict=args.strict)
    except LoadmasterError as error:
        if args.json:
            print(json.dumps({"ok": False, "errors": error.message.splitlines()}))
        raise


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loadmaster check", description=__doc__)
    parser.add_argument("run", metavar="RUN.yaml", help="the run spec")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where there are warnings")
    return parser


def _check(path: Path, *, is_json: bool, is_strict: bool) -> int:
    started = time.monotonic()
    spec = load_run_spec(path)
    try:
        rehearse(spec)
        rows = _open_sources(spec)
    except LoadmasterError as error:
        raise with_lines(error, path) from error
    warnings = [*warnings_of(spec), *(f"source {row.source}: {text}" for row in rows for text in row.warnings)]
    seconds = time.monotonic() - started
    if is_json:
        _print_json(spec, rows, warnings, seconds)
    else:
        _print_table(spec, rows, warnings, seconds)
    return WARNED if warnings and is_strict else 0


def _open_sources(spec: RunSpec) -> list[SourceStock]:
    """Freeze and survey all sources under a progress bar on standard error."""
    with source_bars() as bars:
        manifests = freeze_all(spec, bars)
        return take_stock(spec, manifests, progress=SourceBar(bars, "taking stock", len(spec.sources)))


def _print_table(spec: RunSpec, rows: Sequence[SourceStock], warnings: Sequence[str], seconds: float) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    console.print(stock_table(rows, seconds=seconds))
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    console.print(f"run {spec.run} can be created", style="green", highlight=False)


def _print_json(spec: RunSpec, rows: Sequence[SourceStock], warnings: Sequence[str], seconds: float) -> None:
    totals = {
        "shards": sum(row.shards for row in rows),
        "size_bytes": sum(row.size_bytes for row in rows),
        "num_samples": sum(row.num_samples for row in rows),
        "is_estimate": any(row.is_estimate for row in rows),
        "seconds": seconds,
    }
    sources = [row.to_tree() for row in rows]
    json.dump({"ok": True, "run": spec.run, "sources": sources, "totals": totals, "warnings": warnings}, sys.stdout)
    print()
