"""A PostgreSQL cluster that lives as long as a `with` block."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DRIVERS = ("psycopg", "psycopg2")
USER = "postgres"


def why_not() -> str | None:
    """What is missing for a temporary cluster; None: nothing is."""
    if not all(shutil.which(program) for program in ("initdb", "pg_ctl")):
        return "initdb and pg_ctl are not on the path"
    if not any(importlib.util.find_spec(driver) for driver in DRIVERS):
        return f"no driver is installed ({' or '.join(DRIVERS)})"
    return None


@contextmanager
def postgres_url() -> Iterator[str]:
    """SQLAlchemy URL of a fresh cluster's database; it listens on a socket in its own folder only."""
    driver = next(driver for driver in DRIVERS if importlib.util.find_spec(driver))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.getuid() == 0:
            shutil.chown(folder, USER)
        data = str(folder / "data")
        _run("initdb", "-D", data, "-A", "trust", "-U", USER)
        options = f"-c listen_addresses='' -c unix_socket_directories={name}"
        _run("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql+{driver}://{USER}@/{USER}?host={name}"
        finally:
            _run("pg_ctl", "-D", data, "-m", "immediate", "stop")


def _run(*command: str) -> None:
    """As the user `postgres` where we are root: PostgreSQL refuses to be."""
    as_user = ["runuser", "-u", USER, "--"] if os.getuid() == 0 else []
    subprocess.run([*as_user, *command], check=True, stdout=subprocess.DEVNULL, cwd="/")
