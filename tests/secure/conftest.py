"""One secured plane for all tests of this folder, but for those that need certificates of every caller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.secured import Secured, secured


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Iterator[Secured]:
    """Planner, loader and constructor with TLS and tokens."""
    with secured(tmp_path_factory.mktemp("secured"), tokenizer_file) as plane:
        yield plane
