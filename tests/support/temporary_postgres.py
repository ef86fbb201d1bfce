"""A PostgreSQL cluster that lives as long as a `with` block, and fresh databases in it."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import create_engine, text

DRIVER = "psycopg"
USER = "postgres"
DEBIAN_FOLDERS = "/usr/lib/postgresql"
START_TIMEOUT_S = 60.0
RETRY_S = 0.2


def why_not() -> str | None:
    """What is missing for a temporary cluster; None: nothing is."""
    if binaries() is None:
        return f"initdb and pg_ctl are neither on the path nor in {DEBIAN_FOLDERS}/*/bin: install postgresql"
    if not importlib.util.find_spec(DRIVER):
        return f"{DRIVER} is not installed: pip install 'loadmaster[postgres]'"
    return None


def binaries() -> Path | None:
    """Folder of initdb and pg_ctl, the newest one where the path has none."""
    if found := shutil.which("pg_ctl"):
        return Path(found).resolve().parent
    folders = [path.parent for path in Path(DEBIAN_FOLDERS).glob("*/bin/pg_ctl")]
    return max(folders, key=lambda folder: float(folder.parent.name), default=None)


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A running server. Not thread-safe.

    Args:
        folder: Holds its data and its socket; it listens nowhere else.
        is_durable: It waits for the disk at every commit.
    """

    folder: Path
    is_durable: bool = True
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_database(self, *, like: str = "template1") -> str:
        """SQLAlchemy URL of a new database, empty or a copy of the one of that name."""
        name = f"fresh_{next(self._numbers)}"
        engine = create_engine(self._url(USER), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {like}"))
        engine.dispose()
        return self._url(name)

    def start(self) -> None:
        """Start it, or start it again after it was killed."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder}"
        if not self.is_durable:
            options += " -c fsync=off -c full_page_writes=off -c autovacuum=off"
        until_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                return self._control("-w", "-l", f"{self.folder}/log", "-o", options, "start")
            except subprocess.CalledProcessError:  # while processes of the one that was killed still end
                if time.monotonic() > until_s:
                    raise
            time.sleep(RETRY_S)

    def stop(self) -> None:
        """End it without a checkpoint."""
        self._control("-m", "immediate", "stop")

    def pid(self) -> int:
        """Of the postmaster; its other processes are children."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def _control(self, *arguments: str) -> None:
        folder = binaries()
        assert folder is not None, why_not()
        _run(folder / "pg_ctl", "-D", f"{self.folder}/data", *arguments)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}"


@contextmanager
def temporary_postgres(*, is_durable: bool = True) -> Iterator[Cluster]:
    """Start a cluster with default settings.

    Args:
        is_durable: Wait for the disk at every commit, as a server must; tests need not.
    """
    folder = binaries()
    if folder is None:
        raise FileNotFoundError(why_not())
    with tempfile.TemporaryDirectory(prefix="pg") as name:
        if os.getuid() == 0:
            shutil.chown(name, USER)
        _run(folder / "initdb", "-D", f"{name}/data", "-A", "trust", "-U", USER, "-E", "UTF8", "--no-sync")
        cluster = Cluster(folder=Path(name), is_durable=is_durable)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


def _run(program: Path, *arguments: str) -> None:
    """As the user `postgres` where we are root: PostgreSQL refuses to be."""
    as_user = ["runuser", "-u", USER, "--"] if os.getuid() == 0 else []
    command = [*as_user, str(program), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=START_TIMEOUT_S)
