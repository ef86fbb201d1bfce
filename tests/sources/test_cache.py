"""The block cache: bounded, whole or absent, shared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import loadmaster_flight
from loadmaster_flight.sources.cache import BlockCache, BlockKey


def key_of(block: int, etag: str = "e") -> BlockKey:
    return BlockKey(uri="a.jsonl.gz", etag=etag, block_bytes=4096, block=block)


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.block"))


def test_get_when_put_before_then_gives_the_bytes(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "cache", 1 << 20)
    cache.put(key_of(1), b"abc")
    assert cache.get(key_of(1)) == b"abc"
    assert cache.get(key_of(2)) is None
    assert cache.get(key_of(1, etag="other")) is None
    assert (cache.num_hits, cache.num_misses) == (1, 2)


def test_put_when_budget_is_full_then_the_least_recently_used_goes(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 3_100)
    for block in range(3):
        cache.put(key_of(block), bytes(1_000))
        os.utime(tmp_path / key_of(block).file_name(), ns=(block, block))
    cache.get(key_of(0))
    cache.put(key_of(3), bytes(1_000))
    assert [cache.get(key_of(block)) is not None for block in range(4)] == [True, False, True, True]


def test_put_when_repeated_then_never_exceeds_the_budget(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 10_000)
    for block in range(50):
        cache.put(key_of(block), bytes(block * 97 % 4_000))
        assert bytes_in(tmp_path) <= 10_000


def test_put_when_larger_than_the_budget_then_is_not_kept(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 100)
    cache.put(key_of(0), bytes(100))
    assert cache.get(key_of(0)) is None


def test_get_when_file_is_damaged_then_is_a_miss_and_it_goes(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 1 << 20)
    cache.put(key_of(0), b"abcdef")
    path = tmp_path / key_of(0).file_name()
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.get(key_of(0)) is None
    assert not path.exists()


def test_put_when_a_killed_writer_left_a_part_then_it_goes(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path, 1 << 20)
    (tmp_path / "left.part").write_bytes(b"half")
    cache.put(key_of(0), b"abc")
    assert not (tmp_path / "left.part").exists()


def test_put_when_folder_cannot_be_made_then_reading_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = BlockCache(tmp_path / "file" / "cache", 1 << 20)
    cache.put(key_of(0), b"abc")
    cache.put(key_of(1), b"abc")
    assert cache.get(key_of(0)) is None
    assert len(caplog.records) == 1


WORKER = """
import sys
from pathlib import Path
from loadmaster_flight.sources.cache import BlockCache, BlockKey

folder, worker = Path(sys.argv[1]), int(sys.argv[2])
cache = BlockCache(folder, 50_000)
keys = [BlockKey(uri="a.jsonl.gz", etag="e", block_bytes=4096, block=block) for block in range(30)]
for turn in range(60):
    cache.put(keys[turn % 30], bytes([turn % 30]) * 5_000)
    wanted = (turn * 7 + worker) % 30
    kept = cache.get(keys[wanted])
    assert kept is None or kept == bytes([wanted]) * 5_000, wanted
"""


def test_cache_when_processes_share_it_then_stays_bounded_and_whole(tmp_path: Path) -> None:
    root = str(Path(loadmaster_flight.__file__).parents[1])
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, tmp_path, str(worker)], env={**os.environ, "PYTHONPATH": root})
        for worker in range(2)
    ]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert 0 < bytes_in(tmp_path) <= 50_000
