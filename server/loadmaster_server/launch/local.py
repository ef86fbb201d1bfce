"""Planner, Source Loaders and Data Constructors as processes of this machine."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.control import RunView
from loadmaster_flight.wire.errors import ConflictError, UnavailableError
from loadmaster_flight.wire.token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE

from ..access import AccessMode, AccessService, Role
from ..settings import PlannerSettings
from ..store import AccessRepository, Database
from .child import STOP_GRACE_S, Child, ChildSpec
from .registering import register_run

MAX_RESTARTS = 5
CLUSTER = "cluster"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSize:
    """How many processes of each kind, and threads of a loader (0: one a core)."""

    loaders: int = 1
    constructors: int = 1
    workers: int = 0


@dataclass(slots=True)
class _Member:
    child: Child
    restarts: list[float] = field(default_factory=list)


class LocalCluster:
    """All of Loadmaster's processes on this machine, supervised: a dead loader or constructor is started again.

    Use as a context manager. One thread calls its methods.

    Args:
        state_dir: Holds planner.db, the block cache and `logs/`; one cluster at a time uses it.
        host: A loopback address.
        port: Port of the planner; 0 picks a free one.
        metrics_port: Where the first loader answers scrapes; the other loaders and then the constructors take the ports
            behind it. 0: none does. The planner answers them at its own port.
        access: What somebody may do who has not said who they are; with `token`, the processes get one of their own.

    Attributes:
        token: What its own processes say who they are with; None: they need not.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        size: ClusterSize | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        metrics_port: int = 0,
        access: AccessMode = AccessMode.LOCAL,
    ) -> None:
        self.state_dir, self.size = state_dir, size or ClusterSize()
        self._host, self._port, self._access = host, port, access
        self._metrics_port = metrics_port
        self.token: str | None = None
        self._token_id = ""
        self._members: dict[str, _Member] = {}
        self._lock_file: IO[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Start everything and wait until each process is ready.

        Raises:
            ConflictError: Another cluster uses the state directory.
            UnavailableError: A process ended before it was ready; carries its log's end.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        self._lock()
        planner = self._spawn(self._planner_spec())
        self.url = str(planner.wait_ready()["url"])
        if self._access is AccessMode.TOKEN:
            self._make_token()
        children = [self._spawn(spec) for spec in self._actor_specs()]
        for child in children:
            child.wait_ready()

    def create_run(self, spec: RunSpec, manifests: list[SourceManifest]) -> RunView:
        """Register a run with the planner; the same run again is fine."""
        return register_run(self.url, spec, manifests, timeout_s=30, token=self.token)

    def supervise(self) -> list[str]:
        """Start dead children again; call it about once a second.

        Returns:
            One line for each child that had died.

        Raises:
            UnavailableError: One died more than five times in a minute; carries its log's end.
        """
        return [self._revive(name) for name, member in self._members.items() if member.child.exit_code() is not None]

    def pids(self) -> dict[str, int]:
        """Process ids by child name."""
        return {name: member.child.pid for name, member in self._members.items()}

    def log_path(self, name: str) -> Path:
        return self._members[name].child.log_path

    def stop(self) -> None:
        """End every child, actors first, and release the state directory. Idempotent; takes at most about 10 s."""
        planner = self._members.pop("planner", None)
        actors, self._members = list(self._members.values()), {}
        for group in (actors, [planner] if planner else []):
            for member in group:
                member.child.terminate()
            until_s = time.monotonic() + STOP_GRACE_S
            for member in group:
                member.child.reap(until_s=until_s)
        if self._token_id:
            self._revoke_token()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def __enter__(self) -> LocalCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _logs(self) -> Path:
        return self.state_dir / "logs"

    def _planner_spec(self) -> ChildSpec:
        where = ("--host", self._host, "--port", str(self._port), "--state-dir", str(self.state_dir))
        return ChildSpec(name="planner", command="planner", args=(*where, "--access", self._access.value))

    def _actor_specs(self) -> list[ChildSpec]:
        base = ("--planner", self.url, "--host", self._host)
        loader_args = (*base, "--state-dir", str(self.state_dir), "--workers", str(self.size.workers))
        loaders = [(f"loader-{i}", "loader", loader_args) for i in range(self.size.loaders)]
        constructors = [(f"constructor-{i}", "constructor", base) for i in range(self.size.constructors)]
        environment = () if self.token is None else ((TOKEN_VARIABLE, self.token), (TOKEN_FILE_VARIABLE, ""))
        return [
            ChildSpec(name=name, command=command, args=(*args, *self._metrics_args(i)), environment=environment)
            for i, (name, command, args) in enumerate([*loaders, *constructors])
        ]

    def _metrics_args(self, number: int) -> tuple[str, str]:
        """Said in any case: all of them would take the one port that the environment may name."""
        return "--metrics-port", str(self._metrics_port + number if self._metrics_port else 0)

    def _make_token(self) -> None:
        with self._opened_access() as access:
            self.token, token = access.create_token(CLUSTER, [Role.PROCESS], by=CLUSTER)
        self._token_id = token.id

    def _revoke_token(self) -> None:
        with self._opened_access() as access:
            access.revoke_token(self._token_id, by=CLUSTER)
        self.token, self._token_id = None, ""

    @contextmanager
    def _opened_access(self) -> Iterator[AccessService]:
        database = Database(PlannerSettings(state_dir=self.state_dir).store_url)
        try:
            yield AccessService(AccessRepository(database), self._access)
        finally:
            database.close()

    def _spawn(self, spec: ChildSpec) -> Child:
        child = Child(spec, self._logs)
        member = self._members.get(spec.name)
        if member is None:
            self._members[spec.name] = _Member(child)
        else:
            member.child = child
        return child

    def _revive(self, name: str) -> str:
        member = self._members[name]
        dead, now_s = member.child, time.monotonic()
        member.restarts = [at_s for at_s in member.restarts if now_s - at_s < 60] + [now_s]
        if len(member.restarts) > MAX_RESTARTS:
            raise UnavailableError(f"{name} died {len(member.restarts)} times within a minute:\n{dead.log_tail()}")
        spec = dead.spec
        if name == "planner":  # actors know its address: it must come back on the same port
            spec = self._planner_on_same_port()
        dead.reap(until_s=now_s)
        self._spawn(spec)
        line = f"{name} ended with code {dead.exit_code()}; started again (log: {dead.log_path})"
        log.warning(line)
        return line

    def _planner_on_same_port(self) -> ChildSpec:
        self._port = int(self.url.rsplit(":", 1)[1])
        return self._planner_spec()

    def _lock(self) -> None:
        path = self.state_dir / "cluster.lock"
        self._lock_file = path.open("a+")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock_file.seek(0)
            holder = self._lock_file.read().strip() or "another process"
            self._lock_file.close()
            self._lock_file = None
            raise ConflictError(
                f"state directory {self.state_dir} is in use by {holder}: stop it, or give another --state-dir"
            ) from error
        self._lock_file.truncate(0)
        self._lock_file.write(f"pid {os.getpid()}")
        self._lock_file.flush()
