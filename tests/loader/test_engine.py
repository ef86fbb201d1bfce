"""The engine over real files: whatever the budgets, threads and restarts, the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.wire.errors import BadRequestError, SourceError, UnavailableError
from loadmaster_flight.wire.schemas import METADATA, PIECES, Verdict

PROSE, CODE, CHATS = 0, 1, 2
LANES = {PROSE: 3, CODE: 2, CHATS: 1}
MakeEngine = Callable[..., LoaderEngine]


def read_lane(
    engine: LoaderEngine, source: int, lane: int, *, rows: int, epoch: int = 0, start: list[int] | None = None
) -> list[dict[str, Any]]:
    """All metadata of a lane to its end, asked for `rows` at a time."""
    cursor, found = start or [lane, 0, 0, 0], []
    while True:
        answer = engine.measure(source, epoch, [cursor], rows)
        assert answer.schema.equals(METADATA)
        got = answer.to_pylist()
        assert len(got) <= rows + 1
        found += got
        last = found[-1]
        if last["verdict"] == Verdict.LANE_END:
            return found
        cursor = [lane, last["unit_index"], last["block_index"], last["pos"] + 1]


def read_source(engine: LoaderEngine, source: int, *, rows: int, epoch: int = 0) -> list[dict[str, Any]]:
    return [row for lane in range(LANES[source]) for row in read_lane(engine, source, lane, rows=rows, epoch=epoch)]


def ok_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["verdict"] == Verdict.OK]


def everything(engine: LoaderEngine, plan_of: Any, *, rows: int) -> tuple[list[dict[str, Any]], list[pa.RecordBatch]]:
    """Metadata of all sources, and their samples as steps of 40 pieces."""
    measured = [row for source in LANES for row in read_source(engine, source, rows=rows)]
    kept = ok_rows(measured)
    plans = [plan_of(step, kept[step * 40 : step * 40 + 40]) for step in range(-(-len(kept) // 40))]
    return measured, [engine.materialize([plan]) for plan in plans]


def test_measure_when_lane_ends_has_every_row_once_and_the_mark(make_engine: MakeEngine) -> None:
    found = read_source(make_engine(), PROSE, rows=30)
    ends = [row for row in found if row["verdict"] == Verdict.LANE_END]
    assert [end["lane"] for end in ends] == [0, 1, 2]
    ids = {(row["shard"], row["block"], row["row"]) for row in found if row["verdict"] != Verdict.LANE_END}
    rows_of_block = {0: 50, 1: 50, 2: 30}
    assert ids == {(s, b, row) for s in range(3) for b, num in rows_of_block.items() for row in range(num)}
    assert len(found) == len(ids) + 3


def test_measure_when_rows_cannot_be_used_says_why(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prose, code = read_source(engine, PROSE, rows=100), read_source(engine, CODE, rows=100)
    skipped = [row for row in prose if row["verdict"] == Verdict.SKIPPED]
    assert {(row["shard"], row["block"], row["row"]) for row in skipped} == {(0, 0, 17), (1, 0, 17), (2, 0, 17)}
    assert all(row["reason"] and row["num_tokens"] == 0 for row in skipped)
    assert [row["verdict"] for row in code].count(Verdict.BAD) == 1


def test_measure_when_epochs_differ_takes_another_order(make_engine: MakeEngine) -> None:
    engine = make_engine()
    first, second = (read_source(engine, PROSE, rows=64, epoch=epoch) for epoch in (0, 1))
    ids = [[(row["shard"], row["block"], row["row"]) for row in rows] for rows in (first, second)]
    assert ids[0] != ids[1]
    assert sorted(ids[0]) == sorted(ids[1])


@pytest.mark.parametrize("source", [PROSE, CODE, CHATS])
def test_measure_when_restarted_at_any_cursor_goes_on_exactly_there(make_engine: MakeEngine, source: int) -> None:
    whole = read_lane(make_engine(), source, 0, rows=1000)
    for cut in (1, 7, 50, len(whole) - 1):
        last = whole[cut - 1]
        cursor = [0, last["unit_index"], last["block_index"], last["pos"] + 1]
        assert read_lane(make_engine(), source, 0, rows=13, start=cursor) == whole[cut:]


def test_measure_when_several_lanes_are_asked_answers_lane_by_lane(make_engine: MakeEngine) -> None:
    engine = make_engine()
    answer = engine.measure(PROSE, 0, [[2, 0, 0, 0], [0, 0, 0, 5]], 10).to_pylist()
    assert [row["lane"] for row in answer] == [2] * 10 + [0] * 10
    assert answer[10]["pos"] == 5


@pytest.mark.parametrize(("workers", "window_bytes", "shuffle_bytes"), [(1, 1 << 29, 1 << 28), (4, 1 << 16, 1 << 16)])
def test_engine_when_budgets_and_threads_differ_yields_the_same_bytes(
    make_engine: MakeEngine, workers: int, window_bytes: int, shuffle_bytes: int, plan_of: Any
) -> None:
    reference_rows, reference_pieces = everything(make_engine(workers=2), plan_of, rows=1000)
    engine = make_engine(workers=workers, window_bytes=window_bytes, shuffle_bytes=shuffle_bytes)
    rows, pieces = everything(engine, plan_of, rows=9)
    assert rows == reference_rows
    assert all(a.equals(b) for a, b in zip(pieces, reference_pieces, strict=True))


def test_materialize_when_never_measured_makes_the_same_pieces(make_engine: MakeEngine, plan_of: Any) -> None:
    first = make_engine()
    kept = ok_rows(read_source(first, CODE, rows=50))[5:60:3]
    expected = first.materialize([plan_of(3, kept)])
    assert make_engine().materialize([plan_of(3, kept)]).equals(expected)


def test_materialize_when_window_holds_the_rows_reads_and_measures_nothing_again(
    make_engine: MakeEngine, plan_of: Any
) -> None:
    engine = make_engine()
    kept = ok_rows(read_source(engine, PROSE, rows=200))
    before = engine.stats()
    engine.materialize([plan_of(0, kept)])
    after = engine.stats()
    assert after["rows_measured"] == before["rows_measured"] == 390
    assert after["blocks_read"] == before["blocks_read"] == 9


def test_materialize_when_sample_is_cut_joins_up_to_the_whole(make_engine: MakeEngine, plan_of: Any) -> None:
    engine = make_engine()
    row = max(ok_rows(read_source(engine, CHATS, rows=100)), key=lambda r: r["num_tokens"])
    num = row["num_tokens"]
    whole = engine.materialize([plan_of(0, [row])]).to_pylist()[0]
    cuts = [(0, 8), (8, 8), (16, num - 16)]
    parts = engine.materialize([plan_of(step, [row], [cut]) for step, cut in enumerate(cuts)]).to_pylist()
    assert [part["step"] for part in parts] == [0, 1, 2]
    assert [token for part in parts for token in part["tokens"][: part["num_tokens"]]] == whole["tokens"]
    assert parts[0]["tokens"][8] == whole["tokens"][8]
    assert targets(parts) == targets([whole])


def targets(parts: list[dict[str, Any]]) -> set[int]:
    """Token indexes of the sample that count as targets."""
    found: set[int] = set()
    for part in parts:
        spans = part["loss_spans"]
        for start, stop in zip(spans[::2], spans[1::2], strict=True):
            found |= {part["first_token"] + j for j in range(start, stop)}
    return found


def test_materialize_when_plans_are_empty_yields_an_empty_batch(make_engine: MakeEngine, plan_of: Any) -> None:
    engine = make_engine()
    assert engine.materialize([]).schema.equals(PIECES)
    assert engine.materialize([plan_of(0, [])]).num_rows == 0


def test_measure_when_answered_reads_ahead_for_the_next_request(make_engine: MakeEngine, wait_until: Any) -> None:
    engine = make_engine()
    cursors = [[lane, 0, 0, 0] for lane in range(3)]
    engine.measure(PROSE, 0, cursors, 20)
    assert engine.stats()["lanes_read_ahead"] == 3
    wait_until(lambda: engine.stats()["rows_measured"] == 120, "reading ahead")
    answer = engine.measure(PROSE, 0, [[lane, 0, 0, 20] for lane in range(3)], 20)
    assert answer.num_rows == 60


def test_measure_when_window_is_nearly_full_does_not_read_ahead(make_engine: MakeEngine) -> None:
    engine = make_engine(window_bytes=1 << 16)
    engine.measure(PROSE, 0, [[lane, 0, 0, 0] for lane in range(3)], 100)
    assert engine.stats()["lanes_read_ahead"] == 0
    assert engine.stats()["window_bytes"] <= 1 << 16


def test_release_when_all_is_delivered_frees_the_window(make_engine: MakeEngine, wait_until: Any, plan_of: Any) -> None:
    engine = make_engine()
    kept = ok_rows(read_source(engine, PROSE, rows=1000))
    plans = [plan_of(step, kept[step::4]) for step in range(4)]
    for plan in plans:
        engine.materialize([plan])
    full = engine.stats()["window_bytes"]
    engine.release(plans[0])
    assert engine.stats()["window_bytes"] == full
    for plan in plans[1:]:
        engine.release(plan)
    assert engine.stats()["window_bytes"] == 0


def test_measure_when_shard_changed_since_freezing_names_it(make_engine: MakeEngine, own_corpus: Path) -> None:
    engine = make_engine(folder=own_corpus)
    pq.write_table(pa.table({"text": ["other"]}), own_corpus / "prose-1.parquet")
    with pytest.raises(SourceError, match=r"prose-1\.parquet"):
        engine.measure(PROSE, 0, [[0, 0, 0, 0]], 5)
    assert engine.measure(CODE, 0, [[0, 0, 0, 0]], 5).num_rows == 5


def test_measure_when_tokenizer_changed_since_freezing_says_so(
    make_run: Any, tokenizer_file: Path, tmp_path: Path
) -> None:
    spec, manifests = make_run()
    tree = json.loads(tokenizer_file.read_text())
    tree["model"]["merges"].pop()
    other = tmp_path / "other.json"
    other.write_text(json.dumps(tree))
    changed = spec.model_copy(update={"tokenizer": str(other)})
    with (
        LoaderEngine(changed, manifests, cache_dir=None) as engine,
        pytest.raises(SourceError, match=r"'prose'.*changed since the run was created"),
    ):
        engine.measure(PROSE, 0, [[0, 0, 0, 0]], 5)


def test_measure_when_source_is_unknown_says_which_there_are(make_engine: MakeEngine) -> None:
    with pytest.raises(BadRequestError, match=r"source must be in \[0, 3\), got 3"):
        make_engine().measure(3, 0, [[0, 0, 0, 0]], 5)


@pytest.mark.parametrize("cursor", [[3, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 0], []])
def test_measure_when_cursor_is_none_of_the_source_is_refused(make_engine: MakeEngine, cursor: list[int]) -> None:
    with pytest.raises(BadRequestError, match=r"cursor of source 'prose'.*, lane in \[0, 3\)"):
        make_engine().measure(PROSE, 0, [cursor], 5)


def test_engine_when_closed_refuses_and_may_be_closed_again(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.measure(PROSE, 0, [[0, 0, 0, 0]], 5)
    engine.close()
    engine.close()
    with pytest.raises(UnavailableError, match="closed"):
        engine.measure(PROSE, 0, [[0, 0, 0, 0]], 5)
