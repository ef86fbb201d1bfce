"""Checks of `loadmaster doctor` for machines that run a planner, loaders or constructors.

Nothing heavy is imported at the top: where an extra is not installed its checks are skipped, and say so.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loadmaster.cli import findings
from loadmaster.cli.findings import DoctorCase, Finding, fail, ok, skip, warn

COMPILED = {"av": "av", "tokenizers": "tokenizers", "simplejpeg": "simplejpeg", "pillow": "PIL.Image"}
"""Packages with compiled parts -> what to import: they may be there and not work."""
MIN_FREE_BYTES = 1 << 30


def check_data_plane(case: DoctorCase) -> Iterator[Finding]:
    """What loaders and constructors need: the extra `flight`."""
    if findings.installed("av") is None and findings.installed("tokenizers") is None:
        yield skip("flight packages", "not installed: pip install 'loadmaster[flight]' to run loaders here")
        return
    needed = findings.required_packages("flight")
    yield from findings.check_packages("flight packages", needed, how="loadmaster[flight]")
    for name, module in COMPILED.items():
        if findings.installed(name) is not None:
            yield from _import(name, module)


def check_control_plane(case: DoctorCase) -> Iterator[Finding]:
    """What a planner needs: the extra `server`, a folder to write to, a database of the right version."""
    if findings.installed("fastapi") is None or findings.installed("sqlalchemy") is None:
        yield skip("server packages", "not installed: pip install 'loadmaster[server]' to run a planner here")
        return
    own = set(findings.required_packages("server")) - set(findings.required_packages("flight"))  # which comes along
    yield from findings.check_packages("server packages", sorted(own), how="loadmaster[server]")
    yield _state_dir(case.state_dir)
    yield _database(case)


def _import(name: str, module: str) -> Iterator[Finding]:
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever a compiled module does when it cannot be loaded
        yield fail(name, f"cannot be imported: {error}", f"pip install --force-reinstall {name}")


def _state_dir(folder: Path) -> Finding:
    existing = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    if not existing.is_dir():
        return fail("state directory", f"{existing} is no folder", "give another --state-dir")
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".doctor-"):
            pass
    except OSError as error:
        fix = f"chown {os.getuid()} {existing}, or give another --state-dir"
        return fail("state directory", f"{existing} cannot be written to: {error.strerror}", fix)
    free = shutil.disk_usage(existing).free
    found = f"{folder} can be {'written to' if existing == folder.absolute() else 'made'}, {free >> 20:,} MiB free"
    if free < MIN_FREE_BYTES:
        return warn("state directory", found, "make room: plan log and caches are kept there")
    return ok("state directory", found)


def _database(case: DoctorCase) -> Finding:
    from loadmaster_flight.wire.errors import LoadmasterError

    from ..settings import DATABASE_VARIABLE, PlannerSettings
    from ..store import revisions_of, without_password

    given = case.database_url or os.environ.get(DATABASE_VARIABLE, "")
    url = PlannerSettings(state_dir=case.state_dir, database_url=given).store_url
    path = url.removeprefix("sqlite:///")
    if path != url and not Path(path).exists():
        return skip("database", f"{path} is not there yet: the planner makes it")
    shown = without_password(url)
    try:
        current, newest, is_known = revisions_of(url)
    except LoadmasterError as error:
        return fail("database", f"{shown}: {error.message}", "start the database, or see to --database-url")
    if current == newest:
        return ok("database", f"{shown} answers, its schema is {newest}")
    if current is None or is_known:
        fix = "start the planner once: it brings the schema up to date"
        return warn("database", f"{shown} answers, its schema is {current or 'empty'}, not {newest}", fix)
    fix = "pip install --upgrade loadmaster: a newer version has used this database"
    return fail("database", f"{shown}: its schema {current} is unknown to this version, which has {newest}", fix)
