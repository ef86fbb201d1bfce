"""The pure parts on every Python that the project declares and this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT, Release, new_environment

pytestmark = pytest.mark.timeout(900)
OTHERS = [version for version in ("3.11", "3.12", "3.13") if version != "{}.{}".format(*sys.version_info)]
PURE = (
    "planning/test_cost.py", "planning/test_fair.py", "planning/test_mixture.py", "planning/test_ordering.py",
    "planning/test_place_tree.py", "schedules/test_curves.py", "spec", "wire/test_control.py", "wire/test_errors.py",
    "wire/test_skip.py", "wire/test_slicing.py", "wire/test_step_plan.py", "wire/test_tickets.py",
)  # fmt: skip
"""Tests that need no more than what `new_environment` installs below, and none of this suite's fixtures."""
FEW = """
import sys, hypothesis, pytest
hypothesis.settings.register_profile("few", deadline=None, database=None, max_examples=5)
hypothesis.settings.load_profile("few")
sys.exit(pytest.main(sys.argv[1:]))
"""
"""Runs pytest with fewer examples of each property."""
RELOADED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""hypothesis is there before pytest is."""
IMPORTS = "import loadmaster, loadmaster.adapters, loadmaster_flight.spec, loadmaster_server.planning"


def interpreter(version: str) -> str | None:
    """Where a Python of that version is: on the path, or where pyenv keeps them."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [str(path / "bin" / f"python{version}") for path in sorted(pyenv.glob(f"{version}.*"))]
    return next((path for path in [shutil.which(f"python{version}"), *found] if path and _is(path, version)), None)


def _is(path: str, version: str) -> bool:
    """Whether it runs, as that version, and can make environments (a shim may do neither)."""
    code = "import sys, venv; print('{}.{}'.format(*sys.version_info))"
    try:
        ended = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return False
    return ended.stdout.strip() == version


@pytest.mark.parametrize("version", OTHERS)
def test_pure_parts_when_on_another_python_then_their_tests_pass(
    version: str, release: Release, tmp_path: Path
) -> None:
    path = interpreter(version)
    if path is None:
        pytest.skip(f"no python{version} on the path or under pyenv")
    wanted = (str(release.wheel), "pydantic", "pyyaml", "pytest", "hypothesis")
    environment = new_environment(tmp_path / "env", "--no-compile", *wanted, python=path)
    environment.run("python", "-c", IMPORTS)
    # The suite's own settings would put the checkout before what is installed.
    own = ("-c", os.devnull, "--rootdir", str(ROOT / "tests"), "-o", "pythonpath=tests", "--import-mode=importlib")
    argv = (*own, "--noconftest", "-p", "no:cacheprovider", "-q", "-W", "error", *RELOADED, *PURE)
    told = environment.run("python", "-c", FEW, *argv, cwd=ROOT / "tests")
    assert " passed" in told
    assert "failed" not in told
    assert "skipped" not in told
