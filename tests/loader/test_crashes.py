"""A decoder that crashes takes a loader down once: the record of what was open, and real processes that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadmaster_flight.loader import crashes as crashes_module
from loadmaster_flight.loader.crashes import NUM_SLOTS, CrashRecord, SampleName
from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.loader.watched import MediaWatch
from loadmaster_flight.sources.blocks import ContentError
from loadmaster_flight.transforms import isolated
from loadmaster_flight.transforms.codec import MediaCodec
from loadmaster_flight.transforms.media import Phase
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.schemas import MediaKind, Verdict
from loadmaster_flight.wire.tickets import MaterializeTicket, MeasureTicket, Ticket, sign
from support.crashing import crashing_child, crashing_program

from .media_runs import PICTURES, picture

SAMPLE = SampleName("small", "pictures", 0, 1, 15)
END_S = 60.0


@pytest.fixture
def open_record(tmp_path: Path) -> Iterator[Callable[[], CrashRecord]]:
    records: list[CrashRecord] = []

    def make() -> CrashRecord:
        records.append(CrashRecord(tmp_path / "crashes"))
        return records[-1]

    yield make
    for record in records:
        record.close()


def die_inside(folder: Path, sample: SampleName, *, how: str) -> None:
    """Another process opens a sample and dies of it."""
    program = f"""
import os, signal
from pathlib import Path
from loadmaster_flight.loader.crashes import CrashRecord, SampleName
record = CrashRecord(Path({str(folder)!r}))
with record.noting(SampleName("small", "pictures", 0, 0, 1), "probe"):
    pass
with record.noting(SampleName(*{tuple(sample)!r}), "decode"):
    {how}
"""
    ended = subprocess.run([sys.executable, "-c", program], env=environment(), check=False, timeout=END_S)
    assert ended.returncode < 0


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_record_when_a_process_dies_inside_names_the_sample_and_no_other(
    tmp_path: Path, open_record: Callable[[], CrashRecord]
) -> None:
    die_inside(tmp_path / "crashes", SAMPLE, how="os.kill(os.getpid(), signal.SIGSEGV)")
    record = open_record()
    assert record.num_deaths(SAMPLE) == 1
    assert not record.num_deaths(SampleName("small", "pictures", 0, 0, 1))
    assert not record.num_deaths(SAMPLE._replace(run="other"))
    record.close()
    assert open_record().num_deaths(SAMPLE)  # and ever after
    assert len(list((tmp_path / "crashes").glob("slots-*"))) == 1


def test_record_when_another_process_dies_meanwhile_learns_of_it(
    tmp_path: Path, open_record: Callable[[], CrashRecord], wait_until: Any
) -> None:
    record = open_record()
    die_inside(tmp_path / "crashes", SAMPLE, how="os.abort()")
    wait_until(lambda: record.num_deaths(SAMPLE), "the other process's end")


def test_record_when_a_process_lives_leaves_its_slots_alone(open_record: Callable[[], CrashRecord]) -> None:
    first, second = open_record(), open_record()
    with first.noting(SAMPLE, "probe"):
        second.refresh()
        assert not second.num_deaths(SAMPLE)
        with second.noting(SAMPLE, "probe"):
            pass
    first.refresh()
    assert not first.num_deaths(SAMPLE)


def test_record_when_the_block_raises_clears_its_slot(tmp_path: Path, open_record: Callable[[], CrashRecord]) -> None:
    record = open_record()
    with pytest.raises(ZeroDivisionError), record.noting(SAMPLE, "probe"):
        raise ZeroDivisionError
    (path,) = (tmp_path / "crashes").glob("slots-*")
    assert not any(path.read_bytes())


def test_record_when_more_are_open_than_slots_goes_on(open_record: Callable[[], CrashRecord]) -> None:
    record, opened, may_end = open_record(), threading.Barrier(NUM_SLOTS + 6), threading.Event()

    def work() -> None:
        with record.noting(SAMPLE, "probe"):
            opened.wait(END_S)
            may_end.wait(END_S)

    threads = [threading.Thread(target=work) for _ in range(NUM_SLOTS + 5)]
    for thread in threads:
        thread.start()
    opened.wait(END_S)
    may_end.set()
    for thread in threads:
        thread.join(END_S)
    assert len(set(record._free)) == len(record._free) == NUM_SLOTS


def test_record_when_a_slot_or_line_is_torn_passes_over_it(
    tmp_path: Path, open_record: Callable[[], CrashRecord]
) -> None:
    folder = tmp_path / "crashes"
    folder.mkdir()
    slots = [b'["small", "pict', json.dumps([*SAMPLE, "probe"]).encode(), b"\xff\xff", b"[1, 2]"]
    (folder / "slots-1-dead").write_bytes(b"".join(slot.ljust(512, b"\0") for slot in slots))
    (folder / "suspects.jsonl").write_text('["small", "clips", 0, 0, 3]\n["small", "cl')
    record = open_record()
    assert set(record._suspects) == {SAMPLE, SampleName("small", "clips", 0, 0, 3)}


def test_record_when_suspects_are_many_keeps_the_newest(
    tmp_path: Path, open_record: Callable[[], CrashRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crashes_module, "MAX_SUSPECTS", 3)
    folder = tmp_path / "crashes"
    folder.mkdir()
    lines = [json.dumps(["small", "pictures", 0, 0, row]) for row in range(10)]
    (folder / "suspects.jsonl").write_text("\n".join(lines) + "\n")
    assert {sample.row for sample in open_record()._suspects} == {7, 8, 9}


LOADER = "from loadmaster_flight.loader.process import main\nmain()"


class Loaders:
    """Real loader processes, one after the other, that share a state directory."""

    def __init__(self, program: str, folder: Path, planner: Any, wait_until: Any) -> None:
        self._program, self._folder, self.planner, self._wait = program, folder, planner, wait_until
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self) -> str:
        """Start one, and return its address."""
        ready = self._folder / f"ready-{len(self.started)}.json"
        argv = [sys.executable, "-c", self._program, "--planner", self.planner.url, "--state-dir", str(self._folder)]
        with (self._folder / "loader.log").open("ab") as log:
            process = subprocess.Popen(
                [*argv, "--workers", "2", "--ready-file", str(ready)], env=environment(), stdout=log, stderr=log
            )
        self.started.append(process)
        self._wait(lambda: ready.exists() or process.poll() is not None, "the loader to be ready", END_S)
        return str(json.loads(ready.read_text())["address"])

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait(END_S)

    def ask(self, address: str, ticket: Ticket) -> list[dict[str, Any]]:
        with FlightPeer(address) as peer:
            return list(peer.read_all(sign(ticket, self.planner.key), timeout_s=END_S).to_pylist())

    def measure(self, address: str) -> list[dict[str, Any]]:
        cursors = [[lane, 0, 0, 0] for lane in range(2)]
        until = time.time() + END_S
        ticket = MeasureTicket(
            run="small", source=PICTURES, epoch=0, cursors=cursors, rows_per_lane=500, expires_at=until
        )
        return self.ask(address, ticket)


@pytest.fixture
def make_loaders(
    make_planner: Any, freeze_media: Any, tmp_path: Path, wait_until: Any
) -> Iterator[Callable[[str], Loaders]]:
    made: list[Loaders] = []

    def make(program: str) -> Loaders:
        made.append(Loaders(program, tmp_path, make_planner(freeze_media()), wait_until))
        return made[-1]

    yield make
    for loaders in made:
        loaders.close()


@pytest.mark.processes
def test_loader_when_a_header_crashes_the_decoder_dies_once_and_then_says_bad(make_loaders: Any) -> None:
    loaders = make_loaders(crashing_program("image_size", picture(45), LOADER))
    address = loaders.start()
    with pytest.raises(LoadmasterError):
        loaders.measure(address)
    assert loaders.started[0].wait(END_S) == -signal.SIGSEGV
    for _ in range(2):  # whoever starts after it, as often as it likes
        address = loaders.start()
        rows = {row["row"] + 30 * row["block"]: row for row in loaders.measure(address) if row["row"] >= 0}
        assert rows[45]["verdict"] == Verdict.BAD
        assert rows[45]["reason"] == "the decoder crashed on it (SIGSEGV)"
        assert sum(row["verdict"] == Verdict.BAD for row in rows.values()) == 2  # row 33 has no whole header
        loaders.started[-1].terminate()
        loaders.started[-1].wait(END_S)


@pytest.mark.processes
def test_loader_when_pixels_crash_the_decoder_dies_once_and_then_masks(
    make_loaders: Any, plan_of: Any, freeze_media: Any
) -> None:
    spec, manifests = freeze_media()
    with LoaderEngine(spec, manifests, cache_dir=None) as engine:
        measured = engine.measure(PICTURES, 0, [[lane, 0, 0, 0] for lane in range(2)], 500).to_pylist()
        plan = plan_of(0, [row for row in measured if row["verdict"] == Verdict.OK])
        right = engine.materialize([plan]).to_pylist()
    loaders = make_loaders(crashing_program("decode_image", picture(45), LOADER))
    loaders.planner.plans[1] = {0: plan}
    ticket = MaterializeTicket(
        run="small",
        stream="train",
        generation=1,
        first_step=0,
        last_step=1,
        digests=[plan.digest],
        dp_ranks=[0],
        partitions=[[0, 0, 1]],
        expires_at=time.time() + 4 * END_S,
    )
    with pytest.raises(LoadmasterError):
        loaders.ask(loaders.start(), ticket)
    assert loaders.started[0].wait(END_S) == -signal.SIGSEGV
    pieces = loaders.ask(loaders.start(), ticket)
    assert [piece for piece in pieces if not piece["is_masked"]] == [
        piece for piece in right if piece["row"] + 30 * piece["block"] != 45
    ]
    (masked,) = [piece for piece in pieces if piece["is_masked"]]
    assert masked["reason"] == "the decoder crashed on it (SIGSEGV)"
    assert not any(masked["pixels"])
    assert [report["reason"] for report in loaders.planner.verdicts] == ["the decoder crashed on it (SIGSEGV)"]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Of every process that opens a suspect, its command."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    asked: list[Any] = []
    monkeypatch.setattr(isolated.subprocess, "run", noting_calls(asked, subprocess.run))
    return asked


@pytest.mark.parametrize(("deaths", "num_children"), [(1, 2), (2, 4)])
def test_engine_when_an_innocent_was_open_serves_it_as_ever_and_opens_it_here_again_unless_two_died(
    deaths: int,
    num_children: int,
    freeze_media: Any,
    plan_of: Any,
    tmp_path: Path,
    open_record: Callable[[], CrashRecord],
    children: list[Any],
) -> None:
    for _ in range(deaths):
        die_inside(tmp_path / "crashes", SAMPLE, how="os.kill(os.getpid(), signal.SIGKILL)")
    spec, manifests = freeze_media()
    answers = []
    for record in (None, open_record()):
        with LoaderEngine(spec, manifests, cache_dir=None, crashes=record) as engine:
            rows = engine.measure(PICTURES, 0, [[lane, 0, 0, 0] for lane in range(2)], 500)
            plan = plan_of(0, [row for row in rows.to_pylist() if row["verdict"] == Verdict.OK])
            answers.append((rows, engine.materialize([plan])))
            if record is not None:
                assert len(children) == 2  # its header, then its pixels
                engine.measure(PICTURES, 1, [[lane, 0, 0, 0] for lane in range(2)], 500)
                engine.materialize([plan])
    assert all(a.equals(b) for a, b in zip(*answers, strict=True))
    assert len(children) == num_children


def test_suspect_when_it_crashes_twice_is_opened_no_more(
    tmp_path: Path,
    open_record: Callable[[], CrashRecord],
    freeze_media: Any,
    children: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = crashing_child("image_size", picture(45))
    monkeypatch.setattr(isolated, "CHILD", (sys.executable, "-c", child))
    die_inside(tmp_path / "crashes", SAMPLE, how="os.abort()")
    spec, _ = freeze_media()
    watch = MediaWatch(spec, "pictures", open_record()).of_block(SAMPLE.shard, SAMPLE.block)
    for _ in range(5):
        with (
            watch(SAMPLE.row, Phase.PROBE, MediaCodec(spec.media)) as codec,
            pytest.raises(ContentError, match=r"^the decoder crashed on it \(SIGSEGV\)$"),
        ):
            codec.probe(MediaKind.IMAGE, picture(45))
    assert len(children) == 2


def test_suspect_of_several_items_when_one_is_harmless_then_the_other_is_still_opened_elsewhere(
    tmp_path: Path, open_record: Callable[[], CrashRecord], freeze_media: Any, children: list[Any]
) -> None:
    die_inside(tmp_path / "crashes", SAMPLE, how="os.abort()")
    spec, _ = freeze_media()
    watch = MediaWatch(spec, "pictures", open_record()).of_block(SAMPLE.shard, SAMPLE.block)
    for item in (1, 2, 1, 2):
        with watch(SAMPLE.row, Phase.PROBE, MediaCodec(spec.media)) as codec:
            assert codec.probe(MediaKind.IMAGE, picture(item)) == MediaCodec(spec.media).probe(
                MediaKind.IMAGE, picture(item)
            )
    assert len(children) == 2


def noting_calls(calls: list[Any], call: Callable[..., Any]) -> Callable[..., Any]:
    def noted(command: Any, **arguments: Any) -> Any:
        if command == isolated.CHILD:
            calls.append(command)
        return call(command, **arguments)

    return noted
