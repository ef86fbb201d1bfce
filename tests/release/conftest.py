"""What a release is: an sdist, the wheel that is built of it, and environments that hold nothing but the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only with --release: installing takes longer than testing."""
    return None if config.getoption("--release") else True


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The two files. `tree` is the sdist, unpacked."""

    sdist: Path
    wheel: Path
    tree: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment without pip, in which a release was installed."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def loadmaster(self) -> Path:
        """Its command."""
        return self.folder / "bin" / "loadmaster"

    def run(self, *argv: str | Path, cwd: Path | None = None) -> str:
        """Run one of its programs, with nothing of the checkout in reach; what it printed."""
        return run(self.folder / "bin" / argv[0], *argv[1:], cwd=cwd or self.folder)


def run(*argv: str | Path, cwd: Path, **environment: str) -> str:
    """Run to the end; it must end well. Paths of Python that this process has are forgotten."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LOADMASTER"))}
    command = [str(word) for word in argv]
    ended = subprocess.run(
        command, cwd=cwd, env=known | environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, f"{command}: {ended.stdout[-2000:]}{ended.stderr[-4000:]}"
    return ended.stdout


def build(kind: str, tree: Path, into: Path, **environment: str) -> Path:
    """Build `sdist` or `wheel` of a tree with the hatchling that is here: nothing is fetched."""
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", into, cwd=tree, **environment)
    (built,) = into.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return built


def new_environment(folder: Path, *requirements: str, python: str | Path = sys.executable) -> Environment:
    """Make an environment of an interpreter and install into it, from the index that pip is configured for."""
    run(python, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    found = Environment(folder=folder)
    pip = (sys.executable, "-m", "pip", "--python", found.python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "-c", ROOT / "requirements/constraints.txt", *requirements, cwd=folder)
    return found


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Built as one would: the console's bundle first, then the sdist, then the wheel from what is in the sdist."""
    subprocess.run([sys.executable, str(ROOT / "console/build.py"), "bundle"], check=True, stdout=sys.stderr)
    folder = tmp_path_factory.mktemp("release")
    sdist = build("sdist", ROOT, folder / "sdist")
    run("tar", "-xzf", sdist, cwd=folder)
    tree = folder / sdist.name.removesuffix(".tar.gz")
    return Release(sdist=sdist, tree=tree, wheel=build("wheel", tree, folder / "wheel", PATH=str(folder)))


@pytest.fixture(scope="session")
def client(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """`pip install loadmaster`: what a training node has beside its own torch."""
    return new_environment(tmp_path_factory.mktemp("client") / "env", str(release.wheel))


@pytest.fixture(scope="session")
def server(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """`pip install 'loadmaster[server]'`. Not compiled beforehand, which takes as long as unpacking."""
    wanted = f"loadmaster[server] @ {release.wheel.as_uri()}"
    return new_environment(tmp_path_factory.mktemp("server") / "env", "--no-compile", wanted)
