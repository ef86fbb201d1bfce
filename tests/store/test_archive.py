"""Bodies of old plans in segment files, on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadmaster_flight.wire.errors import BadRequestError, GoneError, UnavailableError
from loadmaster_flight.wire.step_plan import plans_from_bytes, plans_to_bytes
from loadmaster_server.store import Definition, GenerationKey, NewGeneration, PlanRecord, Store, StreamKey
from loadmaster_server.store.archive import StepRange
from support.services import plan_at

TRAIN = StreamKey(run="run", stream="train")
STEPS = 50


def _record(step: int, *, is_final: bool = False) -> PlanRecord:
    plan = plan_at(step, seq_len=64, num_bins=8, dp=2, num_steps=step + 1 if is_final else None)
    return PlanRecord(
        step=step, digest=plan.digest, revision=0, is_final=is_final, body=plans_to_bytes([plan]), summary={"n": step}
    )


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[Store]:
    """A store with a folder for segments."""
    with Store(url, storage=str(tmp_path / "segments")) as opened:
        yield opened


@pytest.fixture
def key(
    store: Store, make_definition: Callable[..., Definition], make_new: Callable[..., NewGeneration]
) -> GenerationKey:
    """A generation with a log of 50 steps, a checkpoint at every fourth."""
    store.runs.create(make_definition())
    key = store.generations.open(TRAIN, make_new()).key
    for step in range(STEPS):
        store.plans.commit(key, _record(step), checkpoint=b"%d" % step if step % 4 == 3 else None)
    store.generations.bind(key, STEPS)
    return key


def _files(tmp_path: Path) -> list[str]:
    return sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "segments").rglob("*.*"))


def _move_all(store: Store, *, below: int, num_steps: int) -> None:
    while (part := store.archive.next_range(TRAIN, below=below, num_steps=num_steps)) is not None:
        store.archive.move(part)


def test_move_when_done_then_read_as_before(store: Store, key: GenerationKey, tmp_path: Path) -> None:
    before = store.plans.read(key, 0, STEPS)
    _move_all(store, below=45, num_steps=20)
    after = store.plans.read(key, 0, STEPS)
    assert _files(tmp_path) == [
        "segments/run/train/000000/000000000000-000000000020.arrow",
        "segments/run/train/000000/000000000020-000000000040.arrow",
    ]
    assert [(r.step, r.digest, r.summary) for r in after] == [(r.step, r.digest, r.summary) for r in before]
    assert [plans_from_bytes(r.body)[0].with_digest().digest for r in after] == [r.digest for r in before]
    assert [r.step for r in store.plans.read(key, 18, 22)] == [18, 19, 20, 21]
    sizes = store.archive.sizes()
    assert (sizes["plan_bodies"], sizes["segments"], sizes["checkpoints"]) == (10, 2, 12)


def test_move_when_the_body_is_gone_from_sql_then_the_membership_stays(
    store: Store, key: GenerationKey, tmp_path: Path
) -> None:
    before = store.plans.memberships(key, 0, STEPS)
    _move_all(store, below=STEPS, num_steps=25)
    for file in (tmp_path / "segments").rglob("*.arrow"):
        file.unlink()
    after = store.plans.memberships(key, 0, STEPS)
    assert [(m.step, m.digest, m.pieces.pos.tolist()) for m in after] == [
        (m.step, m.digest, m.pieces.pos.tolist()) for m in before
    ]
    with pytest.raises(GoneError, match=r"steps 0 to 24 were moved to .*segments/run/train.*not there any more"):
        store.plans.read(key, 3, 4)


def test_move_when_repeated_after_a_crash_then_the_file_is_written_again(
    store: Store, key: GenerationKey, tmp_path: Path
) -> None:
    path = tmp_path / "segments" / "run" / "train" / "000000" / "000000000000-000000000010.arrow"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    assert store.archive.move(StepRange(key=key, first=0, last=10)) == path.stat().st_size > 1000
    assert [r.step for r in store.plans.read(key, 0, 10)] == list(range(10))


def test_move_when_the_storage_cannot_be_written_then_nothing_is_lost(
    store: Store, key: GenerationKey, tmp_path: Path
) -> None:
    (tmp_path / "segments").write_text("in the way")
    with pytest.raises(UnavailableError, match=r"plans cannot be moved to .*segments/run/train"):
        store.archive.move(StepRange(key=key, first=0, last=10))
    assert len(store.plans.read(key, 0, STEPS)) == STEPS


def test_move_when_another_one_has_moved_the_steps_then_its_file_stays_as_it_is(
    store: Store, key: GenerationKey, tmp_path: Path
) -> None:
    part = StepRange(key=key, first=0, last=10)
    store.archive.move(part)
    with pytest.raises(UnavailableError, match="step 0 of run/train generation 0 was moved to a segment by somebody"):
        store.archive.move(part)
    assert _files(tmp_path) == ["segments/run/train/000000/000000000000-000000000010.arrow"]
    assert [r.step for r in store.plans.read(key, 0, 10)] == list(range(10))


def test_storage_when_it_is_no_folder_and_no_uri_then_refused(url: str, tmp_path: Path) -> None:
    with Store(url, storage="nope://x") as store, pytest.raises(BadRequestError, match="storage must be an absolute"):
        store.archive.move(StepRange(key=GenerationKey(run="r", stream="s", generation=0), first=0, last=1))


def test_next_range_when_a_segment_is_not_full_then_waits_unless_the_generation_is_over(
    store: Store, key: GenerationKey, make_new: Callable[..., NewGeneration]
) -> None:
    assert store.archive.next_range(TRAIN, below=19, num_steps=20) is None
    assert store.archive.next_range(TRAIN, below=45, num_steps=20) == StepRange(key=key, first=0, last=20)
    _move_all(store, below=45, num_steps=20)
    store.generations.open(TRAIN, make_new(parent=0, first_step=STEPS))
    assert store.archive.next_range(TRAIN, below=49, num_steps=20) is None
    assert store.archive.next_range(TRAIN, below=50, num_steps=20) == StepRange(key=key, first=40, last=50)


def test_replay_when_the_parents_bodies_were_moved_then_the_child_reads_them_too(
    store: Store, key: GenerationKey, make_new: Callable[..., NewGeneration]
) -> None:
    _move_all(store, below=40, num_steps=20)
    new = NewGeneration(parent=0, first_step=30, mesh=make_new().mesh, nonces=["a", "b"], replay_until=STEPS)
    child = store.generations.open(TRAIN, new)
    assert (child.planned, child.bound, child.first_step) == (50, 50, 30)
    assert [r.digest for r in store.plans.read(child.key, 30, 50)] == [r.digest for r in store.plans.read(key, 30, 50)]
    assert store.plans.checkpoint(child.key, 30) is None
    assert store.plans.checkpoint(child.key, 50) == (48, b"47")
    part = store.archive.next_range(TRAIN, below=50, num_steps=20)
    assert part == StepRange(key=key, first=40, last=50)
    store.archive.move(part)
    assert store.archive.next_range(TRAIN, below=50, num_steps=10) == StepRange(key=child.key, first=40, last=50)


def test_replay_when_it_reaches_the_parents_end_then_the_child_ends_there(
    store: Store, key: GenerationKey, make_new: Callable[..., NewGeneration]
) -> None:
    store.plans.commit(key, _record(STEPS, is_final=True), checkpoint=None)
    store.generations.bind(key, STEPS + 1)
    for until, end_step in ((STEPS, None), (STEPS + 1, STEPS + 1)):
        new = NewGeneration(parent=0, first_step=40, mesh=make_new().mesh, nonces=["a", "b"], replay_until=until)
        assert store.generations.open(TRAIN, new).end_step == end_step


def test_thin_then_every_nth_of_the_older_checkpoints_stays(store: Store, key: GenerationKey) -> None:
    assert store.archive.thin(TRAIN, below=32, every=16) == 6
    found = [store.plans.checkpoint(key, step) for step in (15, 31, 32, 39, 47)]
    assert [None if one is None else one[0] for one in found] == [None, 16, 32, 36, 44]
    assert store.archive.thin(TRAIN, below=32, every=16) == 0


def test_forget_then_whole_segments_go_and_what_is_later_can_still_be_gone_on_from(
    store: Store, key: GenerationKey, tmp_path: Path
) -> None:
    _move_all(store, below=STEPS, num_steps=10)
    assert store.archive.forget(TRAIN, below=25) == 2
    assert len(_files(tmp_path)) == 3
    assert store.generations.get(key).held_from == 25
    assert store.plans.checkpoint(key, 25) == (24, b"23")
    assert store.plans.checkpoint(key, 23) is None
    assert [r.step for r in store.plans.read(key, 25, 30)] == list(range(25, 30))
    assert [m.step for m in store.plans.memberships(key, 0, 20)] == list(range(20))
    with pytest.raises(GoneError, match="plan of step 19 of run/train generation 0 is not held any more"):
        store.plans.read(key, 19, 22)
    assert store.archive.forget(TRAIN, below=25) == 0
