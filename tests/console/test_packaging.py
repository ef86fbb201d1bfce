"""What a wheel and an sdist carry of the console, and what the build hook does without a bundle."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hook(tmp_path: Path):
    """The build hook on an empty checkout."""
    cls = runpy.run_path(str(ROOT / "console" / "hatch_build.py"))["ConsoleBundleHook"]
    return cls(str(tmp_path), {}, None, None, str(tmp_path / "dist"), "wheel")


def test_release_without_a_bundle_stops_and_names_the_command(hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOADMASTER_BUILD_CONSOLE", raising=False)
    with pytest.raises(RuntimeError, match="make console"):
        hook.initialize("standard", {})


def test_editable_install_without_a_bundle_goes_on(hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOADMASTER_BUILD_CONSOLE", raising=False)
    hook.initialize("editable", {})


def test_release_with_a_bundle_takes_it_as_it_is(hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOADMASTER_BUILD_CONSOLE", raising=False)
    bundle = tmp_path / "console" / "loadmaster_console" / "bundle"
    bundle.mkdir(parents=True)
    (bundle / "index.html").write_text("<!doctype html>")
    hook.initialize("standard", {})
    assert [each.name for each in bundle.iterdir()] == ["index.html"]
