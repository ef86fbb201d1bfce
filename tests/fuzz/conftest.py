"""What is fuzzed: a live planner and what serves Flight around it. `--fuzz` runs the long version."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from support.secured import Secured, read, secured

settings.register_profile(
    "fuzz",
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Iterator[Secured]:
    """Planner, loader and constructor, a run that both ranks have read a step of."""
    with secured(tmp_path_factory.mktemp("fuzzed"), tokenizer_file) as plane:
        read(plane, 1)
        yield plane


def rss_bytes() -> int:
    """Memory of this process, the servers in it included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of many calls. Printed at the end: `make fuzz` shows it."""

    codes: Counter[str] = field(default_factory=Counter)
    before_bytes: int = field(default_factory=lambda: rss_bytes())

    def tell(self) -> None:
        """One line: calls, by answer or code, and by how much the process is larger."""
        of = ", ".join(f"{count} {code}" for code, count in self.codes.most_common())
        print(f"{self.codes.total()} calls: {of}; memory {(rss_bytes() - self.before_bytes) / 2**20:+.1f} MiB")


def has_grown(since_bytes: int, slack_bytes: int) -> bool:
    """Whether this process is larger by more than that, what can be collected not counted."""
    if rss_bytes() - since_bytes >= slack_bytes:
        gc.collect()  # takes a second where schemathesis is: only where the answer hangs on it
    return rss_bytes() - since_bytes >= slack_bytes


@pytest.fixture(scope="package")
def num_examples(request: pytest.FixtureRequest) -> int:
    """Of each property."""
    return 2000 if request.config.getoption("--fuzz") else 30
