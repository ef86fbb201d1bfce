"""Wheel and sdist, installed where nothing else is: `make release-check`."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from support.commands import wait_until

from .conftest import ROOT, Environment, Release, build

pytestmark = pytest.mark.timeout(900)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LIMIT_BYTES = 300_000_000
SPEC = """\
run: installed
vocab_size: 32
sources: {ids: {uri: ids.jsonl, transform: {tokens: ids, eos: false}}}
batch: {seq_len: 64, microbatches: 4}
until: {steps: 4}
"""


def test_wheel_when_built_of_the_sdist_without_node_then_as_one_of_the_checkout(
    release: Release, tmp_path: Path
) -> None:
    with zipfile.ZipFile(release.wheel) as ours, zipfile.ZipFile(build("wheel", ROOT, tmp_path)) as other:
        assert {file.filename: file.CRC for file in ours.infolist()} == {
            file.filename: file.CRC for file in other.infolist()
        }
        names = set(ours.namelist())
    for package in ("loadmaster", "loadmaster_flight", "loadmaster_server", "loadmaster_console"):
        assert f"{package}/py.typed" in names
    assert {"loadmaster_console/bundle/index.html", "loadmaster_server/_migrations/env.py"} <= names
    assert not [name for name in names if re.match(r"tests|benchmarks|examples|docs|console/", name)]


def test_wheel_when_its_metadata_is_read_then_it_is_the_projects(release: Release) -> None:
    with zipfile.ZipFile(release.wheel) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
        told = message_from_bytes(wheel.read(name))
    assert (told["Name"], told["Version"]) == ("loadmaster", PROJECT["version"])
    assert told["Requires-Python"] == ">=3.11"
    assert set(told.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    declared = {line.rsplit(" ", 1)[1] for line in told.get_all("Classifier", []) if ":: Python :: 3." in line}
    assert declared == {"3.11", "3.12", "3.13"}


def test_client_when_installed_alone_then_it_is_small_and_has_numpy_and_pyarrow_beside_it(client: Environment) -> None:
    found = client.run("python", "-c", "import importlib.metadata as m; print(*[d.name for d in m.distributions()])")
    assert set(found.split()) == {"loadmaster", "numpy", "pyarrow"}
    size_bytes = sum(path.stat().st_size for path in client.folder.rglob("*") if not path.is_symlink())
    print(f"client-only install: {size_bytes / 1e6:.0f} MB")
    assert size_bytes < LIMIT_BYTES


def test_client_when_imported_then_neither_servers_nor_decoders_nor_torch_are(client: Environment) -> None:
    code = "import sys, loadmaster, loadmaster.adapters; print(*sorted({n.split('.')[0] for n in sys.modules}))"
    absent = {"av", "fastapi", "loadmaster_server", "pydantic", "sqlalchemy", "torch"}
    assert not absent & set(client.run("python", "-c", code).split())


def test_version_when_asked_for_then_all_say_that_of_the_project(
    client: Environment, server: Environment, planner: str
) -> None:
    for environment in (client, server):
        assert environment.run("loadmaster", "--version") == f"loadmaster {PROJECT['version']}\n"
    assert json.loads(_get(planner + "/api/v1/health"))["version"] == PROJECT["version"]
    assert json.loads(_get(planner + "/openapi.json"))["info"]["version"] == PROJECT["version"]


def test_planner_when_it_comes_from_the_wheel_then_it_serves_the_console(planner: str) -> None:
    page = _get(planner + "/")
    scripts = re.findall(r'src="(/[^"]+\.js)"', page)
    assert "Loadmaster" in page
    assert scripts
    assert all(_get(planner + script) for script in scripts)


def test_client_when_it_fetches_from_installed_services_then_it_gets_what_was_planned(
    client: Environment, planner: str
) -> None:
    told = client.run("loadmaster", "fetch", planner, "--run", "installed", "--json")
    assert [json.loads(line)["step"] for line in told.splitlines()] == [0, 1, 2, 3]


def test_client_when_a_command_needs_the_server_then_it_says_what_to_install(client: Environment) -> None:
    ended = subprocess.run(
        [client.loadmaster, "up", "run.yaml"], cwd=client.folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert 'pip install "loadmaster[server]"' in ended.stderr


@pytest.fixture(scope="module")
def planner(server: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `loadmaster up`, run from the wheel with a run of its own."""
    folder = tmp_path_factory.mktemp("up")
    rows: list[dict[str, Any]] = [{"ids": [(i + j) % 31 + 1 for j in range(20)]} for i in range(400)]
    (folder / "ids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.yaml").write_text(SPEC)
    log, ready = folder / "log", folder / "ready"
    argv = [server.loadmaster, "up", "run.yaml", "--state-dir", folder / "state", "--ready-file", ready]
    with log.open("wb") as sink:
        process = subprocess.Popen(argv, cwd=folder, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        return ready.exists()

    try:
        wait_until(is_ready, timeout_s=120, what="loadmaster up to be ready")
        yield str(json.loads(ready.read_text())["url"])
    finally:
        process.terminate()
        process.wait(30)


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())
