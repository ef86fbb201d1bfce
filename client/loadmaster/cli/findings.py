"""What `loadmaster doctor` finds, and what it is asked to look at: also for the checks of other packages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from loadmaster_flight.wire.tls import Tls

CHECKS_GROUP = "loadmaster.doctor"
"""Entry points of this group are called with a `DoctorCase` and yield findings."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?[^;]*?>=\s*([0-9.]+)[^;]*(?:;(.*))?")


class Status(StrEnum):
    """ok; warn: it works, but not always or not well; fail: it will not work; skip: it was not looked at."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report.

    Attributes:
        check: What was looked at.
        found: What there is.
        fix: What to do; empty where all is well.
    """

    check: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCase:
    """What to look at.

    Attributes:
        planner: Its URL; empty: none is asked.
        state_dir: Folder of a planner on this machine.
        database_url: Its database; empty: planner.db in `state_dir`.
        host: Address at which `ports` should be free.
    """

    planner: str = ""
    state_dir: Path = Path(".loadmaster")
    database_url: str = ""
    host: str = "127.0.0.1"
    ports: tuple[int, ...] = ()
    timeout_s: float = 5.0
    tls: Tls = field(default_factory=Tls)


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check=check, status=Status.OK, found=found)


def warn(check: str, found: str, fix: str) -> Finding:
    """It works, but not always or not well."""
    return Finding(check=check, status=Status.WARN, found=found, fix=fix)


def fail(check: str, found: str, fix: str) -> Finding:
    """It will not work."""
    return Finding(check=check, status=Status.FAIL, found=found, fix=fix)


def skip(check: str, why: str) -> Finding:
    """It was not looked at."""
    return Finding(check=check, status=Status.SKIP, found=why)


def required_packages(extra: str = "") -> Iterator[tuple[str, str]]:
    """Name and least version of the packages that an extra needs; without one, those that are always needed."""
    for line in requires("loadmaster") or []:
        found = _REQUIREMENT.match(line)
        if found is None:
            continue
        name, least, marker = found[1], found[2], found[3] or ""
        wanted = re.search(r"extra == ['\"]([a-z]+)['\"]", marker)
        if (wanted[1] if wanted else "") == extra:
            yield name, least


def installed(name: str) -> str | None:
    """Version of a package; None: it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_package(name: str, least: str, *, how: str) -> Finding:
    """Whether a package is there and new enough.

    Args:
        how: The requirement that brings it.
    """
    found = installed(name)
    if found is None:
        return fail(name, f"is not installed, {least} or newer is needed", f"pip install '{how}'")
    if _numbers(found) < _numbers(least):
        return fail(name, f"{found} is older than {least}", f"pip install --upgrade '{name}>={least}'")
    return ok(name, found)


def check_packages(what: str, packages: Iterable[tuple[str, str]], *, how: str) -> Iterator[Finding]:
    """`check_package` of several: each that is not well, and the others in one line."""
    findings = [check_package(name, least, how=how) for name, least in packages]
    yield from (finding for finding in findings if finding.status is not Status.OK)
    well = [f"{finding.check} {finding.found}" for finding in findings if finding.status is Status.OK]
    if well:
        yield ok(what, ", ".join(well))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0])[:3])
