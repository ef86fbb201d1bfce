"""Fixtures of every package's tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from loadmaster_server.store import upgrade
from support.temporary_postgres import Cluster, temporary_postgres, why_not

# A busy machine must not fail a property: no deadlines, and no complaint about slow generation.
settings.register_profile("loadmaster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loadmaster")

TOGETHER = ("tests/console/", "tests/fuzz/", "tests/secure/", "tests/telemetry/")
"""Folders whose tests share something live."""
SPECIAL_TOKENS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
PROSE = (
    "The loadmaster reads the manifest and balances the weight over the hold.",
    "Every sample is cargo, and the load sheet says where it goes.",
    "user assistant system question answer",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --matrix, --scale, --fuzz and --release: what takes longer than all the rest."""
    parser.addoption("--matrix", action="store_true", help="run all 72 cells of the kill matrix, not ten")
    parser.addoption("--scale", action="store_true", help="open the console at 4,096 ranks and 306 sources")
    parser.addoption("--fuzz", action="store_true", help="send thousands of random calls to each surface, not dozens")
    parser.addoption("--release", action="store_true", help="build, install and run what a release would be")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what runs once on SQLite and once on PostgreSQL: `pytest -m databases`."""
    for item in items:
        values = getattr(item, "callspec", None)
        if values and not {"sqlite", "postgres"}.isdisjoint(map(str, values.params.values())):
            item.add_marker("databases")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """A file's tests have one worker, and a folder's of `TOGETHER`: what they share is set up once."""
    return _ByPlace(config, log)


class _ByPlace(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), file)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the table of the kill matrix."""
    if config.getoption("--matrix"):
        reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
        for report in (one for one in reports if one.when == "call"):
            for name, text in report.user_properties:
                terminalreporter.write_line(f"{name.removeprefix('cell '):34} {text}")


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE tokenizer.json of 320 tokens; the first four are <s>, </s>, <|im_start|>, <|im_end|>."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(PROSE * 4, trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL server of this session's own; tests that ask for it carry the marker `postgres`."""
    if reason := why_not():
        pytest.skip(reason)
    with temporary_postgres(is_durable=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres_schema(postgres: Cluster) -> str:
    """Name of a PostgreSQL database with the newest schema and no rows: a copy is made sooner than a migration."""
    url = postgres.new_database()
    upgrade(url)
    return urlsplit(url).path.removeprefix("/")


@pytest.fixture(scope="session")
def sqlite_schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a file of SQLite."""
    path = tmp_path_factory.mktemp("schema") / "planner.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def postgres_url(postgres: Cluster, postgres_schema: str) -> str:
    """SQLAlchemy URL of a PostgreSQL database without any row."""
    return postgres.new_database(like=postgres_schema)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLAlchemy URL of a database without any row, SQLite and then PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{shutil.copy(request.getfixturevalue('sqlite_schema'), tmp_path)}"
    url: str = request.getfixturevalue("postgres_url")
    return url
