"""The process of a Source Loader: `loadmaster loader --planner URL`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from ..spec.manifest import SourceManifest
from ..spec.run import RunSpec
from ..telemetry import Readings, TelemetryOptions, add_log_options, add_metrics_options, serving_metrics
from ..wire.actor import ActorLink, ActorReport
from ..wire.addresses import check_flight_address
from ..wire.control import HeartbeatReply, Role
from ..wire.ending import stop_event
from ..wire.flight import tune_process
from ..wire.tls import Tls, add_tls, check_listening, tls_of, tls_of_environment
from ..wire.tracing import configure_tracing, shutdown_tracing
from .crashes import CrashRecord
from .engine import LoaderEngine
from .metrics import LoaderParts, read_loader
from .runs import OpenRuns
from .service import LoaderService
from .shadow import Shadows

LOG = logging.getLogger(__name__)
REGISTER_NEWS_S = 1.0
DRAIN_S = 10.0
END_S = 2.5
"""A stop that takes longer (storage or a planner that does not answer) is cut off."""


class LoaderProcess:
    """Link, engines and service of one loader, wired together. `close` it, or use `with`.

    Args:
        planner_url: `https://host:port`, or `http://host:port` on this machine.
        host: Where to listen; beyond this machine with TLS only.
        cache_dir: Where blocks of slow files are kept, and which media are open: without it nothing is known of what
            a decoder crashed on. None: nowhere.
        workers: Threads that transform and decode; 0: one a core.
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
        cache_dir: Path | None = None,
        workers: int = 0,
        advertise: str = "",
        tls: Tls | None = None,
    ) -> None:
        tls = tls or tls_of_environment()
        check_listening(host, tls)
        if advertise:
            check_flight_address(advertise)
        self._cache_dir, self._workers = cache_dir, workers
        self._crashes = CrashRecord(cache_dir / "crashes") if cache_dir is not None else None
        self.runs = OpenRuns(planner_url, self._open_engine, tls=tls)
        self.shadows = Shadows(planner_url, self.runs, tls=tls)
        self.service = LoaderService(
            self.runs, planner_url=planner_url, ticket_key=self._ticket_key, host=host, port=port, tls=tls
        )
        self.link = ActorLink(
            planner_url,
            role=Role.LOADER,
            address=advertise or self.service.address,
            on_desired=self._follow,
            report=self._report,
            tls=tls,
        )
        self.link.start()

    def drain(self, deadline_s: float = DRAIN_S) -> None:
        """Serve on until others own what is ours and everybody knows it, but no longer than the deadline."""
        if not self.link.drain(deadline_s):
            LOG.warning("leaving before others own our partitions")
        elif self.service.stats()["streams"]:  # who asked us before may ask once more: it hears of it by heartbeat
            threading.Event().wait(2 * self.link.heartbeat_s)

    def readings(self) -> Readings:
        """How it is now, for who watches it. Any thread may call it."""
        return read_loader(
            LoaderParts(
                runs=self.runs, service=self.service, shadows=self.shadows, link=self.link, crashes=self._crashes
            )
        )

    def close(self) -> None:
        """Take leave of the planner, end streams, close the runs. Idempotent, at most a few seconds."""
        self.service.draining.set()
        self.link.close()
        self.shadows.close()
        self.service.stop(grace_s=1.0)
        self.runs.close()
        if self._crashes is not None:
            self._crashes.close()

    def _follow(self, desired: HeartbeatReply) -> None:
        self.service.follow(desired)
        self.shadows.follow(desired.leases, desired.released)

    def _report(self) -> ActorReport:
        return ActorReport(
            stats=self.service.stats() | self.shadows.stats() | {"refused_callers": self.service.refused_callers()},
            warm=self.shadows.warm(),
            sources=self.runs.source_reports(),
        )

    def _open_engine(self, run: RunSpec, manifests: list[SourceManifest]) -> LoaderEngine:
        return LoaderEngine(run, manifests, cache_dir=self._cache_dir, workers=self._workers, crashes=self._crashes)

    def _ticket_key(self) -> bytes:
        return self.link.ticket_key

    def __enter__(self) -> LoaderProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT, or with --parent-pipe until standard input ends; a second signal ends at once."""
    args = _parse(argv)
    options, tls = TelemetryOptions.of(args), tls_of(args)
    options.configure_logging("loader")
    configure_tracing("loader")
    tune_process()
    stop = stop_event(has_parent_pipe=args.parent_pipe)
    cache_dir = args.state_dir / "cache" if args.state_dir else None
    process = LoaderProcess(
        args.planner,
        host=args.host,
        port=args.port,
        cache_dir=cache_dir,
        workers=args.workers,
        advertise=args.advertise,
        tls=tls,
    )
    with process, serving_metrics(options, "loader", process.readings, tls):
        _announce(process, args.ready_file, stop)
        stop.wait()
        if stop.is_notice:
            process.drain()
        _end_hard_after(END_S)
    shutdown_tracing()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # a call that a peer never ends must not hold the process


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster loader", description="Run a Source Loader.")
    parser.add_argument("--planner", required=True, metavar="URL", help="the planner, https://host:port")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at; beyond this machine with TLS only")
    parser.add_argument("--port", type=int, default=0, help="port to serve at; 0 takes a free one")
    parser.add_argument("--advertise", default="", metavar="ADDRESS", help="grpc+tls://host:port of a way in")
    add_tls(parser, serves=True)
    add_metrics_options(parser)
    add_log_options(parser)
    parser.add_argument(
        "--state-dir",
        type=Path,
        help="holds the cache of compressed files, and what decoders crashed on; none by default",
    )
    parser.add_argument("--workers", type=int, default=0, help="threads that transform; 0 takes one a core")
    parser.add_argument("--ready-file", type=Path, help="write address and pid here as JSON once registered")
    parser.add_argument("--parent-pipe", action="store_true", help="end when standard input ends")
    return parser.parse_args(argv)


def _end_hard_after(limit_s: float) -> None:
    timer = threading.Timer(limit_s, os._exit, [3])
    timer.daemon = True
    timer.start()


def _announce(process: LoaderProcess, path: Path | None, stop: threading.Event) -> None:
    """Wait until the planner knows us, and say so."""
    while not process.link.wait_registered(REGISTER_NEWS_S):
        if stop.is_set():
            return
    LOG.info("loader at %s, registered with %s", process.service.address, process.link.planner.url)
    if path is not None:
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"address": process.service.address, "pid": os.getpid()}))
        part.replace(path)
