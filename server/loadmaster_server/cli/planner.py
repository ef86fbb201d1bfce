"""The planner's process: `loadmaster planner`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loadmaster_flight.telemetry import LogFormat, TelemetryOptions, add_log_options
from loadmaster_flight.wire.ending import stop_event
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_flight.wire.tls import add_tls, tls_of
from loadmaster_flight.wire.tracing import configure_tracing, shutdown_tracing

from ..access import AccessMode
from ..plans import RetentionRules
from ..serving import PlannerServer
from ..settings import STATE_DIR, PlannerSettings
from ..store import without_password
from .access_store import add_database_url

ACCESS = "what needs a name: changes (local), everything (token), nothing (off); default local"
LOG = logging.getLogger(__name__)
RETENTION = {
    "keep_steps": (1024, "bodies of so many acknowledged steps stay in SQL"),
    "segment_steps": (256, "bodies that move to one segment file"),
    "thin_to": (32, "of older checkpoints every n-th stays"),
    "forget_steps": (0, "bodies older than so many steps are deleted; 0: never"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT, or with --parent-pipe until standard input ends.

    Returns:
        0 after an orderly stop, 2 when it could not start; the reason is on standard error.
    """
    args = _parse(argv)
    options = TelemetryOptions.of(args)
    options.configure_logging("planner")
    configure_tracing("planner")
    stop = stop_event(has_parent_pipe=args.parent_pipe)
    try:
        with PlannerServer(_settings(args)) as server:
            if args.ready_file:
                _announce(args.ready_file, server.url)
            LOG.info("planner at %s, state in %s", server.url, without_password(server.seat.settings.store_url))
            if server.seat.is_standing_by:
                _tell(options, f"loadmaster planner: standing by at {server.url}: {server.seat.holder} acts")
            stop.wait()
    except LoadmasterError as error:
        _tell(options, f"loadmaster planner: {error}")
        return 2
    finally:
        shutdown_tracing()
    return 0


def _tell(options: TelemetryOptions, text: str) -> None:
    """Say something to who started it; a log of JSON has nothing else in it."""
    if options.log_format is LogFormat.JSON:
        LOG.error("%s", text)
    else:
        print(text, file=sys.stderr)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster planner", description="Run the planner.")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at; beyond this machine with TLS")
    parser.add_argument("--port", type=int, default=0, help="port to serve at; 0 takes a free one")
    parser.add_argument("--state-dir", type=Path, default=Path(STATE_DIR), help="folder of planner.db")
    add_database_url(parser)
    parser.add_argument("--storage", default="", help="folder or URI for bodies of old plans, instead of segments/")
    for name, (default, about) in RETENTION.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=about)
    parser.add_argument("--lease-s", type=float, default=5.0, help="silence after which a process is given up")
    parser.add_argument(
        "--planner-lease-s", type=float, default=5.0, help="silence after which a planner that stands by takes over"
    )
    parser.add_argument("--access", type=AccessMode, choices=list(AccessMode), default=AccessMode.LOCAL, help=ACCESS)
    add_tls(parser, serves=True)
    parser.add_argument("--heartbeat-s", type=float, default=0.5, help="how often processes report")
    add_log_options(parser)
    parser.add_argument("--ready-file", type=Path, help="write url and pid here as JSON once serving")
    parser.add_argument("--parent-pipe", action="store_true", help="end when standard input ends")
    return parser.parse_args(argv)


def _settings(args: argparse.Namespace) -> PlannerSettings:
    return PlannerSettings(
        host=args.host,
        port=args.port,
        state_dir=args.state_dir,
        database_url=args.database_url,
        heartbeat_s=args.heartbeat_s,
        lease_s=args.lease_s,
        storage=args.storage,
        retention=RetentionRules(**{name: getattr(args, name) for name in RETENTION}),
        planner_lease_s=args.planner_lease_s,
        access=args.access,
        tls=tls_of(args),
    )


def _announce(path: Path, url: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    part.replace(path)
