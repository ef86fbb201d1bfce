"""All processes of a run, each behind a proxy of its own, so that any of them can be killed, stopped or cut off.

Everything lives in one folder, temporary files too, and every process is known by that: what is left over shows.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from loadmaster.cli.actors import list_actors
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.store import Database
from loadmaster_server.store.actors import ActorRepository

from .commands import is_alive, wait_until
from .ports import free_port
from .severing import SeveringProxy, ports_of, to_file, to_port
from .temporary_postgres import Cluster

LEASE_S = 2.0
HEARTBEAT_S = 0.5
READY_TIMEOUT_S = 180.0
END_TIMEOUT_S = 60.0
OWNER_TIMEOUT_S = 60.0
ASK_S = 0.1
DATABASE = "database"
PLANNER = "planner"


@dataclass(slots=True)
class Member:
    """A process of the rig, and the way to it."""

    name: str
    port: int
    proxy: SeveringProxy
    process: subprocess.Popen[bytes]
    ready: Path


@dataclass(slots=True)
class Rig:
    """A planner, loaders and constructors. Use it with `with`; one thread calls its methods.

    Args:
        folder: Empty; holds state, logs and temporary files.
        postgres: Where the planner's database is; None: SQLite in the folder.
        lease_s: Of loaders and constructors, and the planner's own.
    """

    folder: Path
    postgres: Cluster | None = None
    num_loaders: int = 2
    num_constructors: int = 2
    lease_s: float = LEASE_S
    heartbeat_s: float = HEARTBEAT_S
    members: dict[str, Member] = field(default_factory=dict)
    severed: set[int] = field(default_factory=set)
    used_ports: set[int] = field(default_factory=set)
    shared_memory: set[str] = field(default_factory=set)
    planner_proxy: SeveringProxy = field(init=False)
    planner_port: int = field(init=False)
    database_proxy: SeveringProxy | None = None
    database_url: str = ""
    client: PlannerClient = field(init=False)
    _num_started: int = 0

    @property
    def temporary(self) -> Path:
        """Where its processes put temporary files."""
        return self.folder / "tmp"

    @property
    def url(self) -> str:
        """The planner's, through its proxy."""
        return f"http://127.0.0.1:{self.planner_proxy.port}"

    def start(self) -> None:
        """Start all of them, and wait until they are registered."""
        self.temporary.mkdir(parents=True)
        self.planner_port = free_port()
        self.planner_proxy = SeveringProxy(to_port(self.planner_port), self.severed_ports)
        self.client = PlannerClient(self.url, timeout_s=5)
        self._open_database()
        self.start_planner()
        for i in range(self.num_loaders):
            self._start_actor(f"loader-{i}")
        for i in range(self.num_constructors):
            self._start_actor(f"constructor-{i}")
        self.wait_whole()

    def start_planner(self) -> None:
        """Start the planner, where the last one was."""
        where = [f"--state-dir={self.folder / 'state'}", f"--port={self.planner_port}", f"--lease-s={self.lease_s}"]
        if self.postgres is not None:
            assert self.database_proxy is not None
            where.append(f"--database-url={self._through(self.database_proxy)}")
        where += [f"--heartbeat-s={self.heartbeat_s}", f"--planner-lease-s={self.lease_s}", "--access=off"]
        self._start(PLANNER, self.planner_port, self.planner_proxy, "planner", *where)

    def revive(self, party: str) -> None:
        """Do what a supervisor does at once for the planner or the database; all others stay away for now."""
        if party == PLANNER:
            self.members[PLANNER].process.wait(END_TIMEOUT_S)
            self.start_planner()
            self.planner_proxy.resume()
        elif party == DATABASE:
            assert self.postgres is not None
            assert self.database_proxy is not None
            self.postgres.start()
            self.database_proxy.resume()

    def restart_lost(self) -> None:
        """Start again whatever has ended, and wait until all are registered."""
        for name, member in list(self.members.items()):
            if member.process.poll() is None:
                continue
            if name == PLANNER:
                self.start_planner()
            else:
                member.proxy.close()
                self._start_actor(name)
        self.wait_whole()

    def wait_whole(self) -> None:
        """Wait until the planner knows every loader and constructor that runs, and nobody else."""
        for member in self.members.values():
            wait_until(member.ready.exists, timeout_s=READY_TIMEOUT_S, what=f"{member.name} to be ready")
        wanted = sorted(m.process.pid for name, m in self.members.items() if name != PLANNER)

        def is_whole() -> bool:
            with contextlib.suppress(Exception):  # whatever the planner says while it is not there
                return sorted(actor.pid for actor in list_actors(self.client)) == wanted
            return False

        wait_until(is_whole, timeout_s=READY_TIMEOUT_S, what="all actors to be registered", every_s=ASK_S)

    def severed_ports(self) -> set[int]:
        """Local ports of the processes that are cut off."""
        return ports_of(list(self.severed)) if self.severed else set()

    def proxies(self) -> list[SeveringProxy]:
        """All ways."""
        actors = [member.proxy for name, member in self.members.items() if name != PLANNER]
        return [self.planner_proxy, *([self.database_proxy] if self.database_proxy else []), *actors]

    def spawn(self, name: str, *argv: str, stdout: int | IO[bytes] | None = None) -> subprocess.Popen[bytes]:
        """A process of the rig, in a session of its own; what it says on standard error is in the folder's NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *argv],
                stdin=subprocess.PIPE,
                stdout=log if stdout is None else stdout,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )

    def owner(self, run: str, role: str, *, standby: bool = False) -> str:
        """Name of the member that owns the run's first partition (loader) or dp rank 0 of its newest generation; waits
        while nobody does."""
        what = f"a {role} of {run}"
        return wait_until(lambda: self._owner(run, role, standby) or "", timeout_s=OWNER_TIMEOUT_S, what=what)

    def _owner(self, run: str, role: str, standby: bool) -> str | None:
        database = Database(self.database_url)
        try:
            actors = ActorRepository(database)
            leases = [lease for lease in actors.leases() if lease.run == run and (lease.standby > 0) is standby]
            if role == "loader":
                leases = [lease for lease in leases if lease.source >= 0]
            else:
                leases = [lease for lease in leases if lease.generation >= 0 and lease.slot == 0]
            order = sorted(leases, key=lambda lease: (-lease.generation, lease.source, lease.slot))
            pids = {actor.number: actor.pid for actor in actors.all()}
        finally:
            database.close()
        pid = pids.get(order[0].actor) if order else None
        return next((name for name, member in self.members.items() if member.process.pid == pid), None)

    def processes(self) -> dict[int, int]:
        """All processes that come from here, alive: pid -> session. Known by where they put temporary files."""
        mark = f"TMPDIR={self.temporary}".encode()
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        return {pid: _session_of(pid) for pid in pids if mark in _environment_of(pid) and is_alive(pid)}

    def note_shared_memory(self) -> None:
        """Remember what shared memory there is, to see later that it is gone."""
        for pid in [*self.processes(), *self.database_pids()]:
            with contextlib.suppress(OSError):
                maps = Path(f"/proc/{pid}/maps").read_text()
                self.shared_memory |= {line.split("/dev/shm/")[1] for line in maps.splitlines() if "/dev/shm/" in line}

    def database_pids(self) -> list[int]:
        """The postmaster and its children."""
        if self.postgres is None:
            return []
        root = self.postgres.pid()
        return [root, *(int(p) for p in os.listdir("/proc") if p.isdigit() and _parent_of(int(p)) == root)]

    def leftovers(self) -> list[str]:
        """What dead processes have left: processes, ports, files. Empty, if all is well."""
        alive = {m.process.pid for m in self.members.values() if m.process.poll() is None}
        ports = {m.port for m in self.members.values() if m.process.pid in alive}
        found = [f"process {pid} of session {s}" for pid, s in self.processes().items() if s not in alive]
        found += [f"port {port}" for port in self.used_ports - ports if _is_listening(port)]
        parts = self.folder.glob("state/**/*.part")
        return found + [f"file {path}" for path in [*self.temporary.iterdir(), *parts]]

    def stop(self) -> list[str]:
        """End everything; returns what is left over then. Idempotent."""
        names = [name for name in self.members if name != PLANNER] + [PLANNER]
        for name in names:
            if name in self.members:
                self._end(self.members[name])
        for proxy in self.proxies():
            proxy.close()
        self.client.close()
        found = self.leftovers()
        return found + [f"shared memory {name}" for name in self.shared_memory if self._is_left(name)]

    def _is_left(self, name: str) -> bool:
        return self.postgres is None and Path("/dev/shm", name).exists()

    def _end(self, member: Member) -> None:
        process = member.process
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
            process.send_signal(signal.SIGINT if member.name != PLANNER else signal.SIGTERM)
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def _open_database(self) -> None:
        self.database_url = f"sqlite:///{self.folder / 'state' / 'planner.db'}"
        if self.postgres is not None:
            self.database_url = self.postgres.new_database()
            socket_file = self.postgres.folder / ".s.PGSQL.5432"
            self.database_proxy = SeveringProxy(to_file(socket_file), self.severed_ports)

    def _through(self, proxy: SeveringProxy) -> str:
        name = self.database_url.split("?", 1)[0].rsplit("/", 1)[1]
        return f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}"

    def _start_actor(self, name: str) -> None:
        port, command = free_port(), name.split("-", 1)[0]
        proxy = SeveringProxy(to_port(port), self.severed_ports)
        more = [f"--state-dir={self.folder / 'state'}", "--workers=1"] if command == "loader" else []
        ways = [f"--planner={self.url}", f"--port={port}", f"--advertise=grpc://127.0.0.1:{proxy.port}"]
        self._start(name, port, proxy, command, *ways, *more)

    def _start(self, name: str, port: int, proxy: SeveringProxy, *command: str) -> None:
        self._num_started += 1
        if name in self.members:  # its pipe would stay open
            self._end(self.members[name])
        ready = self.folder / f"{name}.{self._num_started}.ready"
        argv = ["-m", "loadmaster", *command, "--parent-pipe", "--ready-file", str(ready)]
        process = self.spawn(name, *argv)
        self.used_ports.add(port)
        self.members[name] = Member(name=name, port=port, proxy=proxy, process=process, ready=ready)

    def __enter__(self) -> Rig:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def strike(rig: Rig, pids: list[int], fault: str, proxies: list[SeveringProxy]) -> Callable[[], None]:
    """Kill, stop or cut off processes; returns what undoes it (nothing, for a kill).

    Args:
        pids: Processes of one party.
        proxies: The ways to that party.
    """
    if fault == "SIGSTOP":
        _signal(pids, signal.SIGSTOP)
        return lambda: _signal(pids, signal.SIGCONT)
    if fault == "SIGKILL":
        _signal(pids, signal.SIGKILL)
    else:
        rig.severed |= set(pids)
    for proxy in proxies:  # nobody listens at the port of a dead process
        proxy.pause()
    for proxy in rig.proxies():
        proxy.sever()

    def mend() -> None:
        rig.severed -= set(pids)
        for proxy in proxies:
            proxy.resume()

    return mend if fault == "disconnect" else lambda: None


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _stat_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ["Z", "-1", "-1", "-1"]


def _parent_of(pid: int) -> int:
    return int(_stat_of(pid)[1])


def _session_of(pid: int) -> int:
    return int(_stat_of(pid)[3])
