"""`loadmaster add-source RUN.yaml NAME --planner URL`: freeze another source of a run, while it trains.

NAME is an entry of `sources` in RUN.yaml; all else is taken from the run itself. The source is opened and frozen as
`create` does it: its files, their order, and the fingerprint of what makes tokens of them. Nothing is drawn from it
until a revision names it: in the console's schedule editor, or with POST /api/v1/runs/RUN/revisions. The same source
again changes nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from loadmaster_flight.spec import Ramp, RunSpec, load_run_spec
from loadmaster_flight.wire.control import AddSourceRequest, CreateRunRequest, SourceView, to_json
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.http import PlannerClient, retrying

from ..freezing import freeze_run
from .failures import failing_cleanly


@failing_cleanly("add-source")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command; returns the exit code."""
    args = _parser().parse_args(argv)
    spec = load_run_spec(args.run)
    if args.name not in spec.sources:
        raise BadRequestError(f"NAME must be one of the sources {spec.source_names} of {args.run}, got {args.name!r}")
    client = PlannerClient(args.planner, timeout_s=args.timeout_s)
    try:
        view = _add(client, args.of or spec.run, spec, args.name, timeout_s=args.timeout_s)
    finally:
        client.close()
    if args.json:
        print(json.dumps(to_json(view)))
    else:
        size = f"{view.shards} files, {view.lanes} lanes, {view.size_bytes / 2**20:,.1f} MiB"
        print(f"source {view.source} is frozen: {size}\nit is drawn from once a revision gives it a weight")
    return 0


def _add(client: PlannerClient, run: str, spec: RunSpec, name: str, *, timeout_s: float) -> SourceView:
    path = f"/runs/{run}"
    tree = retrying(lambda: client.get(f"{path}/definition", CreateRunRequest), deadline_s=timeout_s).spec
    source = spec.to_tree()["sources"][name]
    known = {other: entry for other, entry in tree["sources"].items() if other != name}
    grown = RunSpec.model_validate(tree | {"sources": known | {name: source}})
    manifest = freeze_run(_weighted(grown, spec, name), only=[name])[0]
    request = AddSourceRequest(name=name, source=source, manifest=manifest.model_dump(mode="json"))
    return retrying(lambda: client.post(f"{path}/sources", request, SourceView), deadline_s=timeout_s)


def _weighted(grown: RunSpec, spec: RunSpec, name: str) -> RunSpec:
    """With the weight that the file gives the source, or that of an average one: so many lanes it gets."""
    weights = dict(grown.mixture.weights)
    mean = sum(ramp.at(0) for ramp in weights.values()) / len(weights)
    weights[name] = spec.mixture.weights.get(name) or Ramp.model_validate(mean)
    return grown.model_copy(update={"mixture": grown.mixture.model_copy(update={"weights": weights})})


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="loadmaster add-source", description=__doc__, formatter_class=formatter)
    parser.add_argument("run", type=Path, metavar="RUN.yaml", help="a run spec that has the source")
    parser.add_argument("name", metavar="NAME", help="of the source")
    parser.add_argument("--planner", required=True, metavar="URL", help="the planner, http://host:port")
    parser.add_argument("--of", metavar="RUN", help="name of the run (default: that in RUN.yaml)")
    parser.add_argument("--json", action="store_true", help="print the source as one JSON object")
    parser.add_argument("--timeout-s", type=float, default=30.0, help="how long the planner may take to answer")
    return parser
