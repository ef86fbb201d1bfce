"""The process of a Data Constructor: `loadmaster constructor --planner URL`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loadmaster_flight.telemetry import (
    Readings,
    TelemetryOptions,
    add_log_options,
    add_metrics_options,
    serving_metrics,
)
from loadmaster_flight.wire.actor import ActorLink, ActorReport
from loadmaster_flight.wire.addresses import check_flight_address
from loadmaster_flight.wire.control import Role
from loadmaster_flight.wire.ending import stop_event
from loadmaster_flight.wire.flight import tune_process
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.suspects import SuspectReporter
from loadmaster_flight.wire.tls import Tls, add_tls, check_listening, tls_of, tls_of_environment
from loadmaster_flight.wire.tracing import configure_tracing, shutdown_tracing

from .engine import ConstructorEngine
from .metrics import ConstructorParts, read_constructor
from .service import ConstructorService

LOG = logging.getLogger(__name__)
DRAIN_S = 10.0
REPORT_TIMEOUT_S = 3.0
TOLD_S = 1.0


class ConstructorProcess:
    """Link, engine and service of one constructor, wired together. `close` it, or use `with`.

    Args:
        planner_url: `https://host:port`, or `http://host:port` on this machine.
        host: Where to listen; beyond this machine with TLS only.
        advertise: Where others reach it, `grpc+tls://host:port`, if that is not where it listens.
        tls: To serve and to call with; None: what the environment says.

    Raises:
        BadRequestError: It would be reached in plain text beyond this machine; or an address is none.
    """

    def __init__(
        self,
        planner_url: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertise: str = "",
        tls: Tls | None = None,
    ) -> None:
        tls = tls or tls_of_environment()
        check_listening(host, tls)
        if advertise:
            check_flight_address(advertise)
        self._planner = PlannerClient(planner_url, tls=tls)
        self._reports = PlannerClient(planner_url, timeout_s=REPORT_TIMEOUT_S, tls=tls)
        suspects = SuspectReporter(
            self._reports, by=lambda: advertise or self.service.address, on_gone=lambda: self.link.beat()
        )
        self.engine = ConstructorEngine(
            self._planner,
            ticket_key=self._ticket_key,
            on_advance=lambda: self.link.beat(),
            on_unreachable=suspects.report,
            tls=tls,
        )
        self.service = ConstructorService(
            self.engine,
            ticket_key=self._ticket_key,
            is_cut_off=lambda: self.link.is_cut_off,
            host=host,
            port=port,
            tls=tls,
        )
        self.link = ActorLink(
            planner_url,
            role=Role.CONSTRUCTOR,
            address=advertise or self.service.address,
            on_desired=self.engine.follow,
            report=self._report,
            tls=tls,
        )
        self.link.start()

    def drain(self, deadline_s: float = DRAIN_S) -> None:
        """Serve on until others serve our ranks, but no longer than the deadline."""
        if not self.link.drain(deadline_s):
            LOG.warning("leaving before others have our ranks")
        self.engine.wait_told(TOLD_S)

    def readings(self) -> Readings:
        """How it is now, for who watches it. Any thread may call it."""
        return read_constructor(ConstructorParts(engine=self.engine, service=self.service, link=self.link))

    def close(self) -> None:
        """End streams, take leave of the planner, stop. Idempotent, takes at most a few seconds."""
        self.service.draining.set()
        self.engine.close()
        self.link.close()
        self.service.stop()
        self._planner.close()
        self._reports.close()

    def _report(self) -> ActorReport:
        stats = self.engine.stats() | {"refused_callers": self.service.refused_callers()}
        return ActorReport(acknowledged=self.engine.progress(), stats=stats)

    def _ticket_key(self) -> bytes:
        return self.link.ticket_key

    def __enter__(self) -> ConstructorProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT, or with --parent-pipe until standard input ends."""
    args = _parse(argv)
    options, tls = TelemetryOptions.of(args), tls_of(args)
    options.configure_logging("constructor")
    configure_tracing("constructor")
    tune_process()
    stop = stop_event(has_parent_pipe=args.parent_pipe)
    process = ConstructorProcess(args.planner, host=args.host, port=args.port, advertise=args.advertise, tls=tls)
    with process, serving_metrics(options, "constructor", process.readings, tls):
        if args.ready_file:
            _announce(args.ready_file, process.service.address)
        LOG.info("constructor at %s for planner %s", process.service.address, args.planner)
        stop.wait()
        if stop.is_notice:
            process.drain()
    shutdown_tracing()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # a call that a peer never ends must not hold the process


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster constructor", description="Run a Data Constructor.")
    parser.add_argument("--planner", required=True, metavar="URL", help="the planner, https://host:port")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at; beyond this machine with TLS only")
    parser.add_argument("--port", type=int, default=0, help="port to serve at; 0 takes a free one")
    parser.add_argument("--advertise", default="", metavar="ADDRESS", help="grpc+tls://host:port of a way in")
    add_tls(parser, serves=True)
    add_metrics_options(parser)
    add_log_options(parser)
    parser.add_argument("--ready-file", type=Path, help="write address and pid here as JSON once serving")
    parser.add_argument("--parent-pipe", action="store_true", help="end when standard input ends")
    return parser.parse_args(argv)


def _announce(path: Path, address: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"address": address, "pid": os.getpid()}))
    part.replace(path)
