from __future__ import annotations

from pathlib import Path

import pytest

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.transforms import build_transform
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_server.freezing import freeze_run, shuffle_shares

BLOCK_BYTES = 1 << 16


@pytest.fixture
def make_run(tmp_path: Path, tokenizer_file: Path):
    """A run over JSONL sources of one file each; `missing` have no file."""

    def make(weights: dict[str, float], *, missing: tuple[str, ...] = (), shuffle_bytes: int = 1 << 20) -> RunSpec:
        for name in set(weights) - set(missing):
            (tmp_path / f"{name}.jsonl").write_text('{"text": "the hold"}\n' * 10)
        sources = {
            name: {
                "uri": str(tmp_path / f"{name}.jsonl"),
                "transform": {"text": "text"},
                "block_bytes": BLOCK_BYTES,
            }
            for name in weights
        }
        return RunSpec.model_validate(
            {
                "run": "test",
                "tokenizer": str(tokenizer_file),
                "sources": sources,
                "mixture": {"weights": weights},
                "batch": {"seq_len": 64, "microbatches": 1},
                "budgets": {"shuffle_bytes": shuffle_bytes},
            }
        )

    return make


def test_freeze_when_sources_are_good_then_manifests_come_in_ordinal_order(make_run):
    run = make_run({f"s{n}": 1 for n in (3, 1, 2)})
    manifests = freeze_run(run)
    assert [(m.name, m.ordinal) for m in manifests] == [("s3", 0), ("s1", 1), ("s2", 2)]
    assert manifests[1].fingerprint == build_transform(run, "s1").fingerprint


def test_freeze_when_only_some_are_asked_for_then_they_equal_those_of_the_whole_run(make_run):
    run = make_run({"a": 1, "b": 2, "c": 3})
    assert freeze_run(run, only=["c", "a"]) == [m for m in freeze_run(run) if m.name in ("a", "c")]


def test_freeze_when_several_sources_fail_then_one_error_tells_each(make_run):
    run = make_run({"a": 1, "b": 1, "c": 1}, missing=("a", "c"))
    with pytest.raises(LoadmasterError) as caught:
        freeze_run(run)
    assert [line.split(":")[0] for line in caught.value.message.splitlines()] == ["source a", "source c"]
    assert [fault["field"] for fault in caught.value.details["faults"]] == ["sources.a.uri", "sources.c.uri"]


def test_freeze_when_it_goes_on_then_each_source_reports_its_end(make_run):
    seen: list[tuple[str, int, int]] = []
    freeze_run(make_run({"a": 1, "b": 1}), progress=lambda *call: seen.append(call))
    assert {(name, done == of) for name, done, of in seen if done == of} == {("a", True), ("b", True)}


def test_shares_when_weights_differ_then_bytes_follow_them(make_run):
    shares = shuffle_shares(make_run({"a": 3, "b": 1, "c": 0, "d": 0.0001}, shuffle_bytes=1 << 20))
    assert shares["c"] == 0 < shares["d"] < BLOCK_BYTES
    assert abs(shares["a"] - 3 * shares["b"]) <= 3
    assert shares["a"] + shares["b"] <= 1 << 20


def test_shares_when_weights_are_as_large_as_they_get_then_are_still_in_proportion(make_run):
    run = make_run({"a": 2.0**53 - 1, "b": 2.0**53 - 1, "c": 0.0}, shuffle_bytes=8 * BLOCK_BYTES)
    assert shuffle_shares(run) == {"a": 4 * BLOCK_BYTES, "b": 4 * BLOCK_BYTES, "c": 0}


def test_freeze_when_all_sources_share_a_fault_then_it_is_told_once(make_run, tmp_path):
    run = make_run({"a": 1, "b": 1}).model_copy(update={"tokenizer": str(tmp_path / "none.json")})
    with pytest.raises(LoadmasterError) as caught:
        freeze_run(run)
    assert len(caught.value.message.splitlines()) == 1
    assert caught.value.details["field"] == "tokenizer"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            '{"txt": "the hold"}\n' * 70,
            r"none of 70 rows can be served: null text \(70\).*columns of the first row: txt",
        ),
        ('{"text": \n' * 3, r"none of 3 rows can be served: broken JSON line"),
        ('{"text": ""}\n{"text": " "}\n{}\n', r"empty text \(2\); null text \(1\)"),
    ],
)
def test_freeze_when_no_row_of_a_small_source_can_be_served_then_refused_with_reasons(
    make_run, tmp_path, content, reason
):
    run = make_run({"a": 1, "b": 1})
    (tmp_path / "b.jsonl").write_text(content)
    with pytest.raises(LoadmasterError, match=r"^source b: sources.b.uri: .*b.jsonl must hold a sample.*" + reason):
        freeze_run(run)


def test_freeze_when_one_row_in_the_last_block_can_be_served_then_accepted(make_run, tmp_path):
    run = make_run({"a": 1})
    (tmp_path / "a.jsonl").write_text('{"text": null}\n' * 9000 + '{"text": "the hold"}\n')
    (manifest,) = freeze_run(run)
    assert manifest.shards[0].size_bytes > 2 * BLOCK_BYTES
