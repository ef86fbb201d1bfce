"""The process of a Data Constructor: `loadmaster constructor --planner URL`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loadmaster_flight.wire.actor import ActorLink, ActorReport
from loadmaster_flight.wire.control import Role
from loadmaster_flight.wire.ending import stop_event
from loadmaster_flight.wire.flight import loopback_only, tune_process
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.suspects import SuspectReporter

from .engine import ConstructorEngine
from .service import ConstructorService

LOG = logging.getLogger(__name__)
DRAIN_S = 10.0
REPORT_TIMEOUT_S = 3.0


class ConstructorProcess:
    """Link, engine and service of one constructor, wired together. `close` it, or use `with`.

    Args:
        planner_url: `http://host:port`.
        advertise: Where others reach it, `grpc://host:port`, if that is not where it listens.
    """

    def __init__(self, planner_url: str, *, host: str = "127.0.0.1", port: int = 0, advertise: str = "") -> None:
        loopback_only(f"grpc://{host}:{port}")
        loopback_only(advertise or f"grpc://{host}")
        self._planner = PlannerClient(planner_url)
        self._reports = PlannerClient(planner_url, timeout_s=REPORT_TIMEOUT_S)
        suspects = SuspectReporter(
            self._reports, by=lambda: advertise or self.service.address, on_gone=lambda: self.link.beat()
        )
        self.engine = ConstructorEngine(
            self._planner,
            ticket_key=self._ticket_key,
            on_advance=lambda: self.link.beat(),
            on_unreachable=suspects.report,
        )
        self.service = ConstructorService(self.engine, ticket_key=self._ticket_key, host=host, port=port)
        self.link = ActorLink(
            planner_url,
            role=Role.CONSTRUCTOR,
            address=advertise or self.service.address,
            on_desired=self.engine.follow,
            report=lambda: ActorReport(acknowledged=self.engine.progress(), stats=self.engine.stats()),
        )
        self.link.start()

    def drain(self, deadline_s: float = DRAIN_S) -> None:
        """Serve on until others serve our ranks, but no longer than the deadline."""
        if not self.link.drain(deadline_s):
            LOG.warning("leaving before others have our ranks")

    def close(self) -> None:
        """End streams, take leave of the planner, stop. Idempotent, takes at most a few seconds."""
        self.service.draining.set()
        self.engine.close()
        self.link.close()
        self.service.stop()
        self._planner.close()
        self._reports.close()

    def _ticket_key(self) -> bytes:
        return self.link.ticket_key

    def __enter__(self) -> ConstructorProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT, or with --parent-pipe until standard input ends."""
    args = _parse(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    tune_process()
    stop = stop_event(has_parent_pipe=args.parent_pipe)
    with ConstructorProcess(args.planner, host=args.host, port=args.port, advertise=args.advertise) as process:
        if args.ready_file:
            _announce(args.ready_file, process.service.address)
        LOG.info("constructor at %s for planner %s", process.service.address, args.planner)
        stop.wait()
        if stop.is_notice:
            process.drain()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # a call that a peer never ends must not hold the process


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster constructor", description="Run a Data Constructor.")
    parser.add_argument("--planner", required=True, metavar="URL", help="the planner, http://host:port")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at; loopback only in this version")
    parser.add_argument("--port", type=int, default=0, help="port to serve at; 0 takes a free one")
    parser.add_argument("--advertise", default="", metavar="ADDRESS", help="grpc://host:port of a way in, if another")
    parser.add_argument("--ready-file", type=Path, help="write address and pid here as JSON once serving")
    parser.add_argument("--parent-pipe", action="store_true", help="end when standard input ends")
    return parser.parse_args(argv)


def _announce(path: Path, address: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"address": address, "pid": os.getpid()}))
    part.replace(path)
