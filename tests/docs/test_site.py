"""The site's pages name what there is. `make docs` builds it, and finds dead links."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import loadmaster
from loadmaster import adapters

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def _script(name: str) -> ModuleType:
    """One of the scripts that write pages of the reference."""
    place = importlib.util.spec_from_file_location(name, DOCS / f"site/{name}.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def spec_reference() -> ModuleType:
    """The script that writes the reference of the run spec."""
    return _script("spec_reference")


@pytest.fixture(scope="module")
def metrics_reference() -> ModuleType:
    """The script that writes the reference of metrics."""
    return _script("metrics_reference")


def test_metrics_reference_when_generated_anew_then_the_same(metrics_reference: ModuleType) -> None:
    text = (DOCS / "reference/metrics.md").read_text("utf-8")
    assert metrics_reference.page() == text, "stale: python docs/site/metrics_reference.py"


def test_metrics_when_defined_then_each_name_is_its_own_and_each_label_explained(metrics_reference: ModuleType) -> None:
    names = [metric.name for metric in metrics_reference.all_metrics()]
    assert len(names) == len(set(names)) > 90
    assert all(re.fullmatch(r"loadmaster_[a-z][a-z_]*[a-z]", name) for name in names)
    assert metrics_reference.unlabelled() == []


def test_run_spec_reference_when_generated_anew_then_the_same(spec_reference: ModuleType) -> None:
    text = (DOCS / "reference/run-spec.md").read_text("utf-8")
    assert spec_reference.page() == text, "stale: python docs/site/spec_reference.py"


def test_run_spec_fields_when_asked_then_each_has_a_description(spec_reference: ModuleType) -> None:
    assert spec_reference.undescribed() == []


def test_run_spec_links_when_followed_then_their_sections_are_there(spec_reference: ModuleType) -> None:
    text = spec_reference.page()
    sections = {spec_reference._anchor(name) for name in re.findall(r"^## `(.+)`$", text, re.M)}
    assert set(re.findall(r"\(#(\w+)\)", text)) == sections - {
        spec_reference._anchor("mixture.weights.NAME")  # a ramp: links lead to its knots
    }


def test_api_page_when_compared_with_the_package_then_names_all_of_it() -> None:
    named = set(re.findall(r"^::: (loadmaster[\w.]+)$", (DOCS / "reference/api.md").read_text("utf-8"), re.M))
    modules = {"encoder", "vision"}
    public = {f"loadmaster.{name}" for name in set(loadmaster.__all__) - modules}
    public |= {f"loadmaster.adapters.{name}" for name in adapters.__all__}
    assert public <= named
    assert all(any(name.startswith(f"loadmaster.{module}.") for name in named) for module in modules)


def test_navigation_when_compared_with_the_pages_then_each_is_there_and_named_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    generated = {"changes.md", "index.md"}
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    leaves = _leaves(nav)
    assert len(leaves) == len(set(leaves))
    assert set(leaves) <= pages | generated
    assert {path for path in pages if path.startswith("how-to/")} <= set(leaves)


def test_benchmarks_when_a_section_has_a_table_then_it_names_the_command() -> None:
    _, *sections = re.split(r"^## ", (DOCS / "benchmarks.md").read_text("utf-8"), flags=re.M)
    for section in (section for section in sections if "\n| --- " in section):
        title, head = section.split("\n", 1)[0], section.split("\n| ", 1)[0]
        commands = re.findall(r"`python (benchmarks/\w+\.py)", head)
        assert commands, f"{title}: no command above its first table"
        assert all((ROOT / path).is_file() for path in commands), title


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [leaf for part in parts for leaf in _leaves(part)]
