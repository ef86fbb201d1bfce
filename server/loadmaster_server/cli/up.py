"""`loadmaster up RUN.yaml`: the whole of Loadmaster as processes of this machine."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live

from loadmaster.cli.actors import list_actors
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.telemetry import TelemetryOptions
from loadmaster_flight.wire.control import StreamView
from loadmaster_flight.wire.ending import stop_event
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.access import AccessMode, Role
from loadmaster_server.launch import ClusterSize, LocalCluster

from .access_store import new_link, opened_store, shell_name
from .failures import failing_cleanly
from .live import status_table
from .opening import open_run
from .planner import ACCESS

REFRESH_S = 0.5


@failing_cleanly("up")
def main(argv: Sequence[str]) -> int:
    """Entry point of the sub-command; returns the exit code."""
    args = _parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    stop = stop_event(has_parent_pipe=args.parent_pipe)
    console = Console(stderr=args.json)
    spec, manifests = open_run(Path(args.run))
    cluster = LocalCluster(
        state_dir=Path(args.state_dir),
        size=ClusterSize(loaders=args.loaders, constructors=args.constructors, workers=args.workers),
        host=args.host,
        port=args.port,
        metrics_port=TelemetryOptions.of(args).metrics_port or 0,
        access=args.access,
    )
    with cluster:
        cluster.create_run(spec, manifests)
        _announce(args, cluster, spec, console)
        _watch(cluster, spec, stop, console)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loadmaster up", description=__doc__)
    parser.add_argument("run", help="the run spec, a YAML file")
    parser.add_argument("--loaders", type=_positive, default=1, help="Source Loader processes (default 1)")
    parser.add_argument("--constructors", type=_positive, default=1, help="Data Constructor processes (default 1)")
    parser.add_argument("--workers", type=int, default=0, help="threads of a loader (default: one a core)")
    parser.add_argument("--host", default="127.0.0.1", help="a loopback address (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port of the planner (default: a free one)")
    parser.add_argument(
        "--metrics-port", type=int, help="first loader's port of GET /metrics; the others take those behind it"
    )
    parser.add_argument("--state-dir", default=".loadmaster", help="database, cache and logs (default .loadmaster)")
    parser.add_argument("--access", type=AccessMode, choices=list(AccessMode), default=AccessMode.LOCAL, help=ACCESS)
    parser.add_argument("--ready-file", help="write {url, run, pids, sign_in} here as JSON once everything answers")
    parser.add_argument("--parent-pipe", action="store_true", help="end when standard input ends")
    parser.add_argument(
        "--json", action="store_true", help="print {url, run, pids, sign_in} as JSON on standard output"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _announce(args: argparse.Namespace, cluster: LocalCluster, spec: RunSpec, console: Console) -> None:
    link = _sign_in_link(cluster)
    facts = {"url": cluster.url, "run": spec.run, "pids": cluster.pids(), "sign_in": link}
    if args.json:
        print(json.dumps(facts), flush=True)
    if args.ready_file:
        part = Path(args.ready_file + ".part")
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)  # whoever reads the link can sign in
        part.write_text(json.dumps(facts))
        part.replace(args.ready_file)
    console.print(f"planner   [bold]{cluster.url}[/]   logs in {cluster.state_dir / 'logs'}")
    call = f'loadmaster.connect("{cluster.url}", run="{spec.run}", rank=rank, world_size=world_size)'
    console.print(f"connect   {call}", soft_wrap=True)
    console.print(f"console   {link}", soft_wrap=True)
    console.print("          (good once, for ten minutes; `loadmaster sign-in` makes another)")
    console.print("stop      Ctrl-C")


def _sign_in_link(cluster: LocalCluster) -> str:
    with opened_store(cluster.state_dir) as database:
        return new_link(database, cluster.url, shell_name(), [Role.ADMIN])


def _watch(cluster: LocalCluster, spec: RunSpec, stop: threading.Event, console: Console) -> None:
    """Keep the children alive, and show the streams where a person looks, until told to stop."""
    client = PlannerClient(cluster.url, timeout_s=5, token=cluster.token)
    with Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else _quiet() as live:
        while not stop.wait(REFRESH_S):
            for line in cluster.supervise():
                console.print(line)
            if live is not None:
                live.update(_table(client, spec, cluster.pids()))
    client.close()
    console.print("stopping")


def _quiet() -> contextlib.nullcontext[None]:
    return contextlib.nullcontext()


def _table(client: PlannerClient, spec: RunSpec, pids: dict[str, int]) -> Group:
    """Empty but for the pids while the planner cannot be asked: the supervisor says what is wrong with it."""
    try:
        views = [client.get(f"/runs/{spec.run}/streams/{name}", StreamView) for name in spec.stream_names]
        return status_table(views, pids, list_actors(client))
    except LoadmasterError:
        return status_table([], pids, [])
