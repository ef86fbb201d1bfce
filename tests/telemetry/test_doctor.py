"""`loadmaster doctor`: what it finds on this machine, at a planner and in its database, and what it says to do."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from loadmaster.cli import doctor, findings, machine_checks, planner_checks
from loadmaster_flight.wire.errors import NotReadyError
from loadmaster_server.store import upgrade

from .conftest import Plane

Examine = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture
def examine(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Runs the command in an empty folder; its exit code, and its findings by what was looked at."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> tuple[int, dict[str, dict[str, Any]]]:
        code = doctor.main([*argv, "--json"])
        told = json.loads(capsys.readouterr().out)
        assert code == (1 if told.get("fail") else 0)
        return code, {finding["check"]: finding for finding in told["findings"]}

    return run


def test_doctor_when_all_is_well_then_every_part_is_looked_at(examine: Examine) -> None:
    code, found = examine()
    assert code == 0
    assert {name for name, finding in found.items() if finding["status"] == "ok"} >= {
        "python", "numpy", "pyarrow", "loopback", "flight packages", "server packages", "state directory",
    }  # fmt: skip
    assert found["planner"]["status"] == found["database"]["status"] == "skip"
    assert all(finding["fix"] for finding in found.values() if finding["status"] in ("warn", "fail"))


def test_doctor_when_it_speaks_to_people_then_the_fix_is_below_what_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_checks, "FEW_FILES", 1 << 40)
    assert doctor.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("fail  open files"))
    assert lines[at + 1].strip().startswith("fix: ulimit -n")
    assert lines[-1].endswith("1 fail") or "1 fail," in lines[-1]


def test_doctor_when_a_port_is_taken_then_it_fails_and_names_it(examine: Examine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, found = examine("--port", str(port))
    assert code == 1
    assert found[f"port {port}"]["status"] == "fail"
    assert str(port) in found[f"port {port}"]["fix"]
    assert examine("--port", str(port))[0] == 0


def test_doctor_when_a_package_is_too_old_or_missing_then_it_says_what_to_install(
    examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = findings.installed
    versions = {"pyarrow": "23.1.0", "rich": None}
    monkeypatch.setattr(findings, "installed", lambda name: versions[name] if name in versions else real(name))
    code, found = examine()
    assert code == 1
    assert found["pyarrow"]["found"] == "23.1.0 is older than 24"
    assert found["pyarrow"]["fix"] == "pip install --upgrade 'pyarrow>=24'"
    assert found["rich"]["fix"] == "pip install 'loadmaster[server]'"


def test_doctor_when_only_the_base_is_installed_then_the_rest_is_skipped_with_the_reason(
    examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, missing = findings.installed, {"fastapi", "sqlalchemy", "av", "tokenizers", "torch"}
    monkeypatch.setattr(findings, "installed", lambda name: None if name in missing else real(name))
    code, found = examine()
    assert code == 0
    assert found["server packages"]["status"] == found["flight packages"]["status"] == "skip"
    assert "loadmaster[server]" in found["server packages"]["found"]
    assert "database" not in found


def test_doctor_when_a_check_cannot_be_loaded_or_breaks_then_the_others_are_made(
    examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def others(group: str) -> list[EntryPoint]:
        return [
            EntryPoint(name="absent", value="no_such_package.checks:check", group=group),
            EntryPoint(name="broken", value="json:loads", group=group),
        ]

    monkeypatch.setattr(doctor, "entry_points", others)
    code, found = examine()
    assert code == 1
    assert found["absent"]["status"] == "skip"
    assert "no_such_package is missing" in found["absent"]["found"]
    assert found["broken"]["status"] == "fail"
    assert found["python"]["status"] == "ok"


def test_doctor_when_nobody_is_at_the_address_then_the_planner_fails(examine: Examine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    code, found = examine("--planner", url)
    assert code == 1
    assert url in found["planner"]["found"]
    assert "loadmaster planner" in found["planner"]["fix"]


def test_doctor_when_the_address_is_none_then_it_says_how_it_looks(examine: Examine) -> None:
    code, found = examine("--planner", "planner:8700")
    assert code == 1
    assert "http://host:port" in found["planner"]["fix"]


@pytest.mark.processes
def test_doctor_when_a_planner_and_its_processes_are_there_then_each_is_told(plane: Plane, examine: Examine) -> None:
    code, found = examine("--planner", plane.cluster.url, "--state-dir", str(plane.cluster.state_dir))
    assert code == 0
    names = ("planner", "version", "clock", "access", "loaders", "constructors", "database", "state directory")
    assert {name: found[name]["status"] for name in names} == dict.fromkeys(names, "ok")
    assert found["loaders"]["found"] == "1 answer at their addresses"


@pytest.mark.processes
@pytest.mark.parametrize(("skew_s", "status"), [(5.0, "warn"), (-100.0, "fail")])
def test_doctor_when_the_clocks_differ_then_it_says_by_how_much(
    plane: Plane, examine: Examine, monkeypatch: pytest.MonkeyPatch, skew_s: float, status: str
) -> None:
    real = time.time
    monkeypatch.setattr(planner_checks.time, "time", lambda: real() - skew_s)
    _, found = examine("--planner", plane.cluster.url)
    assert found["clock"]["status"] == status
    low, high = found["clock"]["found"].removeprefix("the planner's is between ").split(" s ahead")[0].split(" and ")
    assert float(low) <= skew_s <= float(high)


@pytest.mark.processes
def test_doctor_when_a_constructor_cannot_be_reached_then_it_fails_with_its_address(
    plane: Plane, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutOff(planner_checks.FlightPeer):
        def action(self, *args: Any, **options: Any) -> dict[str, Any]:
            raise NotReadyError("nobody answers")

    monkeypatch.setattr(planner_checks, "FlightPeer", CutOff)
    code, found = examine("--planner", plane.cluster.url)
    assert code == 1
    assert found["constructors"]["status"] == "fail"
    assert "grpc://127.0.0.1" in found["constructors"]["found"]
    assert found["loaders"]["status"] == "warn"


def test_doctor_when_the_database_is_behind_or_of_a_newer_version_then_it_says_so(
    examine: Examine, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    upgrade(url, "0004")
    _, found = examine("--database-url", url)
    assert found["database"]["status"] == "warn"
    assert "0004" in found["database"]["found"]
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    code, found = examine("--database-url", url)
    assert code == 1
    assert "newer version" in found["database"]["fix"]


def test_doctor_when_the_database_is_away_then_its_password_is_not_shown(examine: Examine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
    code, found = examine("--database-url", f"postgresql://me:geheim@{place}/planner")
    assert code == 1
    assert place in found["database"]["found"]
    assert "geheim" not in json.dumps(found)


def test_doctor_when_the_state_directory_is_a_file_then_it_fails(examine: Examine, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    code, found = examine("--state-dir", str(tmp_path / "state"))
    assert code == 1
    assert "is no folder" in found["state directory"]["found"]
