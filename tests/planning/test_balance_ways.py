"""Pipelines, groups, mixed devices, equal counts, and the functions interpreted."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster_server.planning.balance import balance, balance_padded

SNAPSHOT = """
import sys
import numpy as np
from loadmaster_server.planning.balance import balance, balance_padded, facade
from loadmaster_server.planning.compiled import HAS_NUMBA
from loadmaster_server.planning.balance.kernel import solve
is_compiled = hasattr(solve, "py_func")
assert is_compiled == (sys.argv[1] != "interpreted"), (HAS_NUMBA, is_compiled)
facade.COMPILE_FROM = 1 << 40 if sys.argv[1] == "small" else 0
for seed, pp, long in ((0, 1, 64), (1, 3, 64), (2, 1, 9), (3, 2, 30)):
    rng = np.random.default_rng(seed)
    size_N, packed_N = [], []
    for b in range(24):
        left = 64
        while left > 0:
            size = min(left, int(rng.integers(1, long + 1)))
            size_N.append(size)
            packed_N.append(b)
            left -= size if rng.random() < 0.98 else 64
    cost_N = np.array(size_N) * (200 + np.array(size_N))
    for drop in (0, 3):
        keep = np.arange(len(size_N)) % 7 >= drop
        result = balance(np.array(size_N)[keep], cost_N[keep], np.array(packed_N)[keep], num_ranks=6, per_rank=4,
                         capacity=64, pp=pp)
        print(result.method, result.bin_N.tobytes().hex(), result.rank_bound.hex(), result.microbatch_bound.hex())
    print(balance_padded(cost_N[:96], num_ranks=4, per_rank=3, pp=pp).bin_N.tobytes().hex())
"""


def snapshot(way: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if way == "interpreted":
        environment["NUMBA_DISABLE_JIT"] = "1"
    command = [sys.executable, "-c", SNAPSHOT, way]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=250).stdout


def test_balance_when_interpreted_then_same_bytes_as_compiled() -> None:
    pytest.importorskip("numba")
    compiled = snapshot("compiled")
    assert {line.split()[0] for line in compiled.splitlines()} >= {"lpt"}
    assert snapshot("interpreted") == compiled
    assert snapshot("small") == compiled


def giants(num_ranks: int, num_giants: int) -> dict[str, np.ndarray]:
    """Full bins of 64: some of one piece, the others of random ones."""
    rng = np.random.default_rng(7)
    sizes, bins = list[int](), list[int]()
    for b in range(num_ranks * 8):
        left = 64
        while left > 0:
            size = 64 if b < num_giants else min(left, int(rng.integers(1, 24)))
            sizes.append(size)
            bins.append(b)
            left -= size
    size_N = np.array(sizes)
    return {"size_N": size_N, "cost_N": size_N * (64 + size_N), "packed_N": np.array(bins)}


def costs(pieces: dict[str, np.ndarray], bin_N: np.ndarray, num_ranks: int) -> np.ndarray:
    return np.bincount(bin_N, pieces["cost_N"], num_ranks * 8).reshape(num_ranks, 8)


def pipeline_time(cost_DM: np.ndarray, pp: int) -> float:
    return float((cost_DM.sum(axis=1) + (pp - 1) * cost_DM.max(axis=1)).max())


def test_balance_when_there_is_a_pipeline_then_its_slowest_rank_is_faster() -> None:
    pieces = giants(16, 3)
    plain = balance(**pieces, num_ranks=16, per_rank=8, capacity=64)
    aware = balance(**pieces, num_ranks=16, per_rank=8, capacity=64, pp=4)
    times = [pipeline_time(costs(pieces, result.bin_N, 16), 4) for result in (plain, aware)]
    assert times[1] < times[0]


def test_balance_when_there_is_a_pipeline_then_ranks_run_a_mountain() -> None:
    pieces = giants(16, 3)
    cost_DM = costs(pieces, balance(**pieces, num_ranks=16, per_rank=8, capacity=64, pp=4).bin_N, 16)
    for row in cost_DM:
        top = int(np.argmax(row))
        assert (np.diff(row[: top + 1]) >= 0).all()
        assert (np.diff(row[top:]) <= 0).all()
        assert 3 <= top <= 4


def test_balance_when_in_groups_then_pieces_stay_in_theirs_and_each_is_even() -> None:
    pieces = giants(8, 8)
    result = balance(**pieces, num_ranks=8, per_rank=8, capacity=64, group_size=2)
    assert (result.bin_N // 16 == pieces["packed_N"] // 16).all()
    group_GD = costs(pieces, result.bin_N, 8).sum(axis=1).reshape(4, 2)
    assert (group_GD.max(axis=1) / group_GD.mean(axis=1)).max() < 1.006


def test_balance_when_a_rank_is_slow_then_it_gets_less_work() -> None:
    pieces = giants(8, 20)
    speed_D = np.array([1.0] * 7 + [0.9])
    cost_D = costs(pieces, balance(**pieces, num_ranks=8, per_rank=8, capacity=64, speed_D=speed_D).bin_N, 8).sum(
        axis=1
    )
    assert cost_D[7] < cost_D[:7].min()
    assert (cost_D / speed_D).max() / (cost_D.sum() / speed_D.sum()) < 1.02


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 10_000), max_size=200), st.integers(1, 7), st.integers(1, 5), st.integers(1, 3))
def test_balance_padded_then_counts_differ_by_one_at_most(
    cost: list[int], num_ranks: int, per_rank: int, pp: int
) -> None:
    bin_N = balance_padded(cost, num_ranks=num_ranks, per_rank=per_rank, pp=pp).bin_N
    count_B = np.bincount(bin_N, minlength=num_ranks * per_rank)
    assert count_B.sum() == len(cost)
    assert count_B.max() - count_B.min() <= 1
    assert bin_N.tobytes() == balance_padded(cost, num_ranks=num_ranks, per_rank=per_rank, pp=pp).bin_N.tobytes()


def test_balance_padded_when_lengths_have_a_tail_then_ranks_are_even() -> None:
    length_N = np.random.default_rng(0).lognormal(6, 1, 16 * 4 * 8).clip(1, 4096).astype(np.int64)
    result = balance_padded(length_N * (65_536 + length_N), num_ranks=16, per_rank=4)
    assert result.method == "padded"
    assert result.rank_max_over_mean < 1.003
    assert (np.bincount(result.bin_N) == 8).all()
