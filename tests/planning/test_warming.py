"""Compiling ahead: what it covers, when it begins, and that nothing waits for it."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from loadmaster_flight.spec import BatchSpec
from loadmaster_server.planning import best_fit, fair
from loadmaster_server.planning.balance import kernel
from loadmaster_server.planning.compiled import HAS_NUMBA
from loadmaster_server.planning.warming import Warming, may_be_large, warm_up_all

DEADLINE_S = 300.0
SMALL: dict[str, Any] = {"seq_len": 1024, "microbatches": 8, "align": 8}
LARGE: dict[str, Any] = {"seq_len": 8192, "microbatches": 64}

needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="the interpreted functions need no compiling")


@pytest.mark.parametrize(
    ("batch", "is_large"),
    [
        (SMALL, False),
        (LARGE, True),
        (SMALL | {"microbatches": [{"at": 0, "value": 8}, {"at": 99, "value": 512}]}, True),
        ({"layout": "pad", "rows": 4, "seq_len": 65_536, "microbatches": 8}, False),
        ({"layout": "pad", "rows": 64, "seq_len": 64, "microbatches": 8}, True),
    ],
)
def test_may_be_large_when_the_largest_step_could_have_many_pieces_then_true(
    batch: dict[str, Any], is_large: bool
) -> None:
    assert may_be_large(BatchSpec.model_validate(batch)) is is_large


@needs_numba
def test_warming_when_a_batch_is_small_then_it_never_begins_else_once_and_nobody_waits() -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()

    def warm_up() -> None:
        begun.release()
        may_end.wait(DEADLINE_S)

    warming = Warming(warm_up)
    warming.look_at(BatchSpec.model_validate(SMALL))
    assert not warming.has_begun
    for _ in range(3):
        warming.look_at(BatchSpec.model_validate(LARGE))
    assert begun.acquire(timeout=DEADLINE_S)
    assert not warming.wait(0.0)
    may_end.set()
    assert warming.wait(DEADLINE_S)
    assert not begun.acquire(blocking=False)


@needs_numba
def test_warm_up_when_done_then_all_that_a_large_step_calls_is_compiled() -> None:
    warm_up_all()
    for function in (kernel.solve, best_fit.fit_all, fair.draw_by_credit):
        assert function.signatures  # type: ignore[union-attr]


@needs_numba
@pytest.mark.processes
def test_process_when_it_ends_in_the_middle_of_compiling_then_it_ends_at_once_and_well(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty cache: the thread has tens of seconds of work left, of which the end waits for none."""
    code = """
import sys, time
from loadmaster_flight.spec import BatchSpec
from loadmaster_server.planning.warming import Warming
warming = Warming()
warming.look_at(BatchSpec.model_validate({"seq_len": 8192, "microbatches": 64}))
assert not warming.wait(1.0)
print(time.monotonic(), flush=True)
"""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
