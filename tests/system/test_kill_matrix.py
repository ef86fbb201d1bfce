"""The kill matrix with real processes and signals: ten cells, or all of them with --matrix (`make matrix`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadmaster_flight.spec import load_run_spec
from loadmaster_server.freezing import freeze_run
from support.kill_matrix import ALL_CELLS, DIAGONAL, STEPS, Cell, Matrix, Outcome, Party
from support.rig import Rig
from support.temporary_postgres import why_not

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(1500)]
BUDGETS = {"plan_ahead": 8, "bind_ahead": 4, "build_ahead": 2}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each rig: cells share its processes, and what they kill is started again after them."""
    if metafunc.config.getoption("--matrix"):
        groups = {str(party): [cell for cell in ALL_CELLS if cell.party is party] for party in Party}
    else:
        groups = {"diagonal": [cell for cell in DIAGONAL if cell.party is not Party.DATABASE or not why_not()]}
    metafunc.parametrize("cells", [pytest.param(cells, id=name, marks=_marks(cells)) for name, cells in groups.items()])


def _marks(cells: list[Cell]) -> list[pytest.MarkDecorator]:
    return [pytest.mark.postgres] if any(cell.party is Party.DATABASE for cell in cells) else []


@pytest.fixture
def make(make_run: Callable[..., Path]) -> Callable[[str], Any]:
    """The run of a cell, by its name, with shadows for each source."""
    frozen: list[Any] = []

    def made(name: str) -> Any:
        path = make_run(run=name, until={"steps": STEPS}, budgets=BUDGETS)
        tree = yaml.safe_load(path.read_text())
        for source in tree["sources"].values():
            source["shadows"] = 1
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
        spec = load_run_spec(path)
        if not frozen:
            frozen.append(freeze_run(spec))
        return spec, frozen[0]

    return made


@pytest.fixture
def make_matrix(
    make: Callable[[str], Any], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[list[Cell]], Matrix]]:
    """Starts rigs, on PostgreSQL where the database is struck."""
    rigs: list[Rig] = []

    def start(cells: list[Cell]) -> Matrix:
        needs_server = any(cell.party is Party.DATABASE for cell in cells)
        postgres = request.getfixturevalue("postgres") if needs_server else None
        rigs.append(Rig(folder=tmp_path / f"rig-{len(rigs)}", postgres=postgres))
        rigs[-1].start()
        return Matrix(rigs[-1], make)

    yield start
    for rig in rigs:
        rig.stop()


def test_run_when_a_party_is_struck_then_nothing_is_lost_repeated_or_left_over(
    make_matrix: Callable[[list[Cell]], Matrix], cells: list[Cell], record_property: Callable[[str, object], None]
) -> None:
    matrix, failures = make_matrix(cells), list[Exception]()
    for cell in cells:
        try:
            record_property(f"cell {cell}", _text(matrix.run(cell)))
        except (Exception, pytest.fail.Exception) as error:
            record_property(f"cell {cell}", f"FAILED: {error}".splitlines()[0])
            error.add_note(str(cell))
            failures.append(error)
            matrix.rig.stop()
            matrix = make_matrix(cells)
    left = matrix.rig.stop()
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(cells)} cells", failures)
    assert not left


def _text(outcome: Outcome) -> str:
    attempts = "went on" if outcome.attempts == 1 else f"resumed {outcome.attempts - 1}x"
    at = "" if outcome.revision_at is None else f", other mixture from step {outcome.revision_at}"
    return f"{attempts:10} longest wait {outcome.wait_s:5.2f} s, {outcome.seconds:5.1f} s in all{at}"
