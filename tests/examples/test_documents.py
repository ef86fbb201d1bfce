"""What the repository says about itself is true: dependencies, provenance."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_dependencies_when_compared_with_pyproject_then_each_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    peers = re.findall(r"^[\w-]+", (ROOT / "requirements/peers.txt").read_text("utf-8"), re.M)
    groups = [project["dependencies"], *project["optional-dependencies"].values(), peers]
    declared = {re.split(r"[<>=~!\[ ]", name)[0] for group in groups for name in group} - {"loadmaster"}
    text = (ROOT / "docs/dependencies.md").read_text("utf-8")
    python = re.sub(r"^## The console .*?(?=^## )", "", text, flags=re.M | re.S)  # the rest is of package.json
    cells = re.findall(r"^\| ([^|]+) \| [^|]{10,} \|$", python, re.M)
    assert {re.split(r"[ \[]", name)[0] for cell in cells for name in cell.split(", ")} == declared


def test_extracts_when_hashed_then_as_in_provenance() -> None:
    data = ROOT / "examples/data"
    told = dict(
        re.findall(r"^\| `([^`]+)` \| \d+ \| `(\w{64})` \|$", (data / "PROVENANCE.md").read_text("utf-8"), re.M)
    )
    files = [p for p in data.rglob("*") if p.is_file() and p.suffix not in {".md"} and p.parent.name != "licenses"]
    hashes = {p.relative_to(data).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    assert hashes == told
    assert sum(p.stat().st_size for p in files) < 8 << 20
