"""Media of pieces: every row's picture, clip and sound says which row it is of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.loader.service import MESSAGE_BYTES, messages
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.transforms import decoders
from loadmaster_flight.transforms.decoders import Decoders, installed_decoders
from loadmaster_flight.transforms.image import decode_image
from loadmaster_flight.transforms.limits import MediaLimits
from loadmaster_flight.transforms.patches import to_patches
from loadmaster_flight.wire.errors import DataError
from loadmaster_flight.wire.schemas import PIECES, MediaKind, Verdict
from loadmaster_flight.wire.step_plan import StepPlan, Units
from support.media_files import encoded, grey_frames, sine, video

from .media_runs import AUDIO, CLIPS, IMAGE, PICTURES, VIDEO, colour, frozen, picture

PATCH_BYTES = 3 * 2 * 14 * 14
LIMITS = MediaLimits(max_bytes=64 << 20, max_pixels=100_000_000)


OpenEngine = Callable[..., LoaderEngine]


@pytest.fixture
def open_media(freeze_media: Any) -> Iterator[OpenEngine]:
    engines: list[LoaderEngine] = []

    def make(*, workers: int = 2, **arguments: Any) -> LoaderEngine:
        spec, manifests = freeze_media(**arguments)
        engines.append(LoaderEngine(spec, manifests, cache_dir=None, workers=workers))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def decode_with() -> Iterator[Callable[..., None]]:
    """Replaces decoders of this process until the test ends."""
    yield lambda **functions: decoders.use_decoders(replace(installed_decoders(), **functions))
    decoders._chosen.clear()


def measured(engine: LoaderEngine, source: int) -> list[dict[str, Any]]:
    num_lanes = 2 if source == PICTURES else 1
    return engine.measure(source, 0, [[lane, 0, 0, 0] for lane in range(num_lanes)], 1000).to_pylist()


def good(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["verdict"] == Verdict.OK]


def pixels_of(piece: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """uint8 [patches, dim]."""
    return np.frombuffer(piece["pixels"], np.uint8).reshape(-1, PATCH_BYTES)


def decoded_patches(data: bytes, grid: list[int]) -> npt.NDArray[np.uint8]:
    pixels_HWC = decode_image(data, (grid[1] * 14, grid[2] * 14), LIMITS)
    return to_patches(pixels_HWC[np.newaxis], patch=14, merge=2, temporal=2)


def test_measure_when_rows_have_pictures_tells_patches_of_each_unit(open_media: OpenEngine) -> None:
    rows = {row["row"] + 30 * row["block"]: row for row in measured(open_media(), PICTURES) if row["row"] >= 0}
    assert len(rows) == 120
    assert rows[1]["image_patches"] == [(56 + 28) // 14 * (56 + 28) // 14]
    assert rows[7]["image_patches"] is None
    assert len(rows[4]["image_patches"]) == 2
    assert rows[33]["verdict"] == Verdict.BAD
    assert rows[33]["reason"]
    assert rows[33]["image_patches"] is None
    assert rows[1]["size_bytes"] > sum(rows[1]["image_patches"]) * PATCH_BYTES


def test_measure_when_files_are_named_reads_them_and_knows_which_are_missing(open_media: OpenEngine) -> None:
    rows = {row["row"]: row for row in measured(open_media(), CLIPS)}
    assert rows[0]["image_patches"] == [24, 24]
    assert rows[4]["verdict"] == Verdict.BAD
    assert rows[4]["reason"] == "video 1 of 2: file not found: none.mp4"


def test_measure_when_media_are_audio_alone_says_no_units(open_media: OpenEngine, media_corpus: Path) -> None:
    engine = open_media()
    (row,) = good(measured(engine, CLIPS))[:1]
    assert row["image_patches"] != []
    spec = engine._run.model_copy(deep=True)
    transform = spec.sources["clips"].transform.model_copy(update={"video": ()})
    sources = {"clips": spec.sources["clips"].model_copy(update={"transform": transform})}
    alone = RunSpec.model_validate(spec.model_copy(update={"sources": sources}).to_tree() | {"mixture": {}})
    with LoaderEngine(alone, [frozen(alone, "clips", media_corpus)], cache_dir=None) as other:
        assert other.measure(0, 0, [[0, 0, 0, 0]], 1).column("image_patches").to_pylist() == [[]]


def test_materialize_when_pieces_have_pictures_sends_them_as_decoded_directly(
    open_media: OpenEngine, plan_of: Any
) -> None:
    engine = open_media()
    rows = good(measured(engine, PICTURES))
    pieces = engine.materialize([plan_of(0, rows)])
    assert pieces.schema.equals(PIECES)
    pieces.validate(full=True)
    for piece in pieces.to_pylist():
        row = piece["row"] + 30 * piece["block"]
        assert not piece["is_masked"]
        if row % 10 == 7:
            assert all(piece[name] is None for name in PIECES.names if name.startswith(("media", "pix", "aud")))
            continue
        files = [picture(row)] if row % 4 else [picture(row), picture(row + 1000)]
        expected = [decoded_patches(data, grid) for data, grid in zip(files, piece["media_grid"], strict=True)]
        assert np.array_equal(pixels_of(piece), np.concatenate(expected))
        assert pixels_of(piece)[0].reshape(3, -1)[:, 0].tolist() == list(colour(row))
        assert piece["media_units"] == list(range(len(files)))
        assert piece["audio"] == b""
        tokens = np.array(piece["tokens"])
        for start, grid in zip(piece["media_start"], piece["media_grid"], strict=True):
            assert (tokens[start : start + grid[1] * grid[2] // 4] == IMAGE).all()
        assert np.count_nonzero(tokens == IMAGE) * 4 == len(pixels_of(piece))


def test_materialize_when_pieces_have_clips_and_sounds_sends_both(open_media: OpenEngine, plan_of: Any) -> None:
    engine = open_media()
    rows = good(measured(engine, CLIPS))
    for piece in engine.materialize([plan_of(0, rows)]).to_pylist():
        assert piece["media_kind"] == [MediaKind.VIDEO, MediaKind.AUDIO]
        frames = piece["media_grid"][1][0]
        assert frames == 10 + -(-piece["row"] // 2)
        assert len(pixels_of(piece)) == sum(np.prod(piece["media_grid"][0], keepdims=True))
        samples = np.frombuffer(piece["audio"], "<i2")
        assert np.array_equal(
            samples[: 3200 + 160 * piece["row"]], sine(3200 + 160 * piece["row"], 16_000, hertz=300 + piece["row"])
        )
        assert piece["tokens"].count(AUDIO) == -(-frames // 2)


@pytest.mark.parametrize(("workers", "window_bytes"), [(1, 1 << 29), (4, 1 << 16)])
def test_materialize_when_budgets_and_threads_differ_sends_the_same_bytes(
    open_media: OpenEngine, plan_of: Any, workers: int, window_bytes: int
) -> None:
    first = open_media()
    plans = [plan_of(step, good(measured(first, source))[step::3]) for source in (PICTURES, CLIPS) for step in range(3)]
    expected = [first.materialize([plan]) for plan in plans]
    engine = open_media(workers=workers, window_bytes=window_bytes)
    assert all(engine.materialize([plan]).equals(pieces) for plan, pieces in zip(plans, expected, strict=True))
    measured(engine, PICTURES)
    assert all(engine.materialize([plan]).equals(pieces) for plan, pieces in zip(plans, expected, strict=True))


def with_units(plan: StepPlan, rows: list[dict[str, Any]], num_ranks: int) -> StepPlan:
    """The plan with its units dealt to ranks in turn."""
    by_id = {(r["source"], r["shard"], r["block"], r["pos"]): r["image_patches"] for r in rows}
    p = plan.pieces
    ids = zip(p.source.tolist(), p.shard.tolist(), p.block.tolist(), p.pos.tolist(), strict=True)
    counts = [len(by_id[each] or ()) for each in ids]
    piece_U = np.repeat(np.arange(len(p)), counts)
    return replace(plan, units=Units(piece_U=piece_U, rank_U=np.arange(len(piece_U)) % num_ranks)).with_digest()


@pytest.mark.parametrize("budget", [1 << 16, 1 << 28])
def test_materialize_when_ranks_encode_sends_units_and_documents_their_own_ways(
    open_media: OpenEngine, plan_of: Any, budget: int
) -> None:
    engine = open_media(vision={"max_patches": 12, "over_max": "shard"}, window_bytes=budget)
    rows = good(measured(engine, PICTURES))
    whole = {(p["block"], p["row"]): p for p in engine.materialize([plan_of(0, rows)]).to_pylist()}
    plan = with_units(plan_of(0, rows, dp=2), rows, num_ranks=5)
    sent: dict[tuple[int, int], dict[int, bytes]] = {}
    documents = []
    for dp_ranks, encoder_ranks in (([0], [0, 3]), ([1], [1, 2, 4])):
        part = plan.of_ranks(set(dp_ranks), encoder_ranks)
        for piece in engine.materialize([part], dp_ranks=dp_ranks, encoder_ranks=encoder_ranks).to_pylist():
            key = (piece["block"], piece["row"])
            if piece["bin"] // 2 in dp_ranks:
                documents.append(key)
                assert piece["tokens"] == whole[key]["tokens"]
                assert piece["loss_spans"] == whole[key]["loss_spans"]
            else:
                assert piece["tokens"] == []
            if whole[key]["pixels"] is not None:
                put_units(sent.setdefault(key, {}), piece, row_patches(rows, key))
    assert sorted(documents) == sorted(whole)
    joined = {key: b"".join(units[unit] for unit in sorted(units)) for key, units in sent.items()}
    assert joined == {key: piece["pixels"] for key, piece in whole.items() if piece["pixels"] is not None}
    if budget > 1 << 20:
        assert engine._media.decoded.num_made == len(joined)  # once, though two asked
        engine.release(plan)
    assert engine.stats()["decoded_bytes"] <= 1 << 15


def row_patches(rows: list[dict[str, Any]], key: tuple[int, int]) -> list[int]:
    return next(row["image_patches"] for row in rows if (row["block"], row["row"]) == key)


def put_units(units: dict[int, bytes], piece: dict[str, Any], patches: list[int]) -> None:
    at = 0
    for unit in piece["media_units"]:
        assert unit not in units
        units[unit] = piece["pixels"][at : at + patches[unit] * PATCH_BYTES]
        at += patches[unit] * PATCH_BYTES
    assert at == len(piece["pixels"])


def test_materialize_when_plan_gives_ranks_to_other_units_refuses(open_media: OpenEngine, plan_of: Any) -> None:
    engine = open_media()
    rows = good(measured(engine, PICTURES))[:4]
    plan = with_units(plan_of(0, rows), rows, num_ranks=2)
    wrong = replace(plan, units=Units(piece_U=np.append(plan.units.piece_U, 3), rank_U=np.append(plan.units.rank_U, 0)))
    with pytest.raises(DataError, match="the plan gives ranks to"):
        engine.materialize([wrong])


def failing_on(row: int) -> Callable[..., Any]:
    """A decoder that takes the header of a row's picture for good and its pixels for bad."""
    right, broken = installed_decoders().decode_image, picture(row)

    def decode(data: bytes, *arguments: Any) -> Any:
        if data == broken:
            raise ValueError("pixels do not add up")
        return right(data, *arguments)

    return decode


def test_materialize_when_pixels_do_not_decode_masks_the_piece_in_its_place(
    open_media: OpenEngine, plan_of: Any, decode_with: Callable[..., None]
) -> None:
    whole = open_media()
    rows = good(measured(whole, PICTURES))
    plan = plan_of(0, rows)
    expected = whole.materialize([plan]).to_pylist()
    decode_with(decode_image=failing_on(45))
    pieces = open_media().materialize([plan])
    for piece, right in zip(pieces.to_pylist(), expected, strict=True):
        if piece["row"] + 30 * piece["block"] != 45:
            assert piece == right
            continue
        assert piece["is_masked"]
        assert piece["reason"] == "ValueError: pixels do not add up"
        assert piece["loss_spans"] == []
        assert piece["pixels"] == bytes(len(right["pixels"]))
        assert piece["media_grid"] == right["media_grid"]
        assert piece["tokens"] == [token if token == IMAGE else 0 for token in right["tokens"]]


def test_materialize_when_a_sample_was_masked_before_masks_it_again_without_decoding(
    open_media: OpenEngine, plan_of: Any, decode_with: Callable[..., None]
) -> None:
    rows = good(measured(open_media(), PICTURES))
    plan = plan_of(0, rows)
    decode_with(decode_image=failing_on(45))
    failed = open_media().materialize([plan])
    bad = pieces_of(failed, masked=True)
    names = ("source", "epoch", "shard", "block", "row")
    journaled = replace(plan, masked=tuple(tuple(piece[name] for name in names) for piece in bad))
    decoders._chosen.clear()
    again = open_media().materialize([journaled])
    assert again.drop_columns("reason").equals(failed.drop_columns("reason"))
    assert [piece["reason"] for piece in pieces_of(again, masked=True)] == ["masked when it was made before"]


def pieces_of(pieces: pa.RecordBatch, *, masked: bool) -> list[dict[str, Any]]:
    return [piece for piece in pieces.to_pylist() if piece["is_masked"] is masked]


def test_materialize_when_a_sample_fails_both_its_document_and_its_units_are_masked(
    open_media: OpenEngine, plan_of: Any, decode_with: Callable[..., None]
) -> None:
    decode_with(decode_image=failing_on(44))  # the first of two pictures
    engine = open_media()
    rows = good(measured(engine, PICTURES))
    plan = with_units(plan_of(0, rows, dp=2), rows, num_ranks=2)
    for dp, encoder in ((0, 1), (1, 0)):
        part = plan.of_ranks({dp}, [encoder])
        pieces = engine.materialize([part], dp_ranks=[dp], encoder_ranks=[encoder])
        (masked,) = pieces_of(pieces, masked=True)
        assert masked["row"] + 30 * masked["block"] == 44
        assert not any(masked["pixels"])


def test_materialize_when_a_file_changes_after_it_was_measured_keeps_its_place(
    open_media: OpenEngine, media_corpus: Path, tmp_path: Path, plan_of: Any
) -> None:
    folder = tmp_path / "changing"
    folder.mkdir()
    for path in media_corpus.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    engine = open_media(folder=folder)
    rows = good(measured(engine, CLIPS))
    plan = plan_of(0, rows)
    right = engine.materialize([plan]).to_pylist()
    engine._opened[CLIPS]._files.close()  # forgets what it read
    (folder / "clip-2.mp4").write_bytes(video(grey_frames(8, 84, 56), rate=4)[:-300])
    pieces = engine.materialize([plan]).to_pylist()
    for piece, before in zip(pieces, right, strict=True):
        if piece["row"] == 2:
            assert piece["is_masked"]
            assert piece["media_grid"] == before["media_grid"]
            assert piece["pixels"] == bytes(len(before["pixels"]))
            assert piece["audio"] == bytes(len(before["audio"]))
        else:
            assert piece == before


def test_messages_when_pixels_are_large_cut_between_pieces(open_media: OpenEngine, plan_of: Any) -> None:
    engine = open_media(vision={"min_pixels": 600 * 600})
    rows = good(measured(engine, PICTURES))
    pieces = engine.materialize([plan_of(0, rows)])
    parts = list(messages(pieces))
    longest = max(len(piece or b"") for piece in pieces.column("pixels").to_pylist())
    assert len(parts) > 10
    assert all(part.nbytes <= MESSAGE_BYTES + longest + 100_000 for part in parts)
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([pieces]))


def test_materialize_when_called_at_once_by_several_decodes_for_each(open_media: OpenEngine, plan_of: Any) -> None:
    engine = open_media()
    rows = good(measured(engine, PICTURES))
    plan = with_units(plan_of(0, rows), rows, num_ranks=3)
    expected = engine.materialize([plan])
    found: list[bool] = []
    calls = [threading.Thread(target=lambda: found.append(engine.materialize([plan]).equals(expected))) for _ in "1234"]
    for call in calls:
        call.start()
    for call in calls:
        call.join(60)
    assert found == [True] * 4


def test_memory_when_many_steps_have_pictures_stays_flat(open_media: OpenEngine, plan_of: Any) -> None:
    engine = open_media(vision={"min_pixels": 400 * 400})
    rows = good(measured(engine, PICTURES))
    plans = [plan_of(step, rows[step % 5 :: 5]) for step in range(50)]
    plans = [with_units(plan, rows, num_ranks=2) if step % 2 else plan for step, plan in enumerate(plans)]
    in_use = []
    for plan in plans:
        size_bytes = engine.materialize([plan]).nbytes
        engine.release(plan)
        in_use.append((pa.total_allocated_bytes(), resident_bytes()))
    assert size_bytes > 8 << 20
    arrow, resident = np.array(in_use).T
    assert arrow[20:].max() - arrow[10:20].max() < 1 << 20
    assert resident[-10:].min() - resident[10:20].max() < 3 * size_bytes
    assert engine.stats()["decoded_bytes"] == 0


def test_materialize_when_lanes_are_far_ahead_reads_each_block_once_more(tmp_path: Path, plan_of: Any) -> None:
    """Four lanes, and budgets that hold a block of each: both ends of a long stretch have theirs."""
    num_blocks, rows_of_block, lanes = 24, 20, 4
    noise = np.random.default_rng(0).integers(0, 256, (num_blocks * rows_of_block, 112, 140, 3), np.uint8)
    rows = [{"image": encoded(pixels_HWC, "PNG")} for pixels_HWC in noise]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "noise.parquet", row_group_size=rows_of_block)
    source = {"uri": str(tmp_path / "noise.parquet"), "transform": {"image": "image", "eos": False}, "lanes": lanes}
    budgets = {"shuffle_bytes": 9 << 19, "window_bytes": 9 << 20}
    spec = RunSpec.model_validate(
        {
            "run": "noise",
            "vocab_size": 400,
            "sources": {"noise": source},
            "batch": {"seq_len": 256, "microbatches": 4},
            "media": {"vision": {"image_token": IMAGE, "video_token": VIDEO}},
            "budgets": budgets,
        }
    )
    with LoaderEngine(spec, [frozen(spec, "noise", tmp_path)], cache_dir=None, workers=2) as engine:
        by_lane: list[list[dict[str, Any]]] = [[] for _ in range(lanes)]
        num_steps, ahead = num_blocks * rows_of_block // lanes // 5, 10
        for step in range(num_steps + ahead):
            if step < num_steps:
                unit, pos = divmod(5 * step, rows_of_block)
                cursors = [[lane, unit, 0, pos] for lane in range(lanes)]
                for row in engine.measure(0, 0, cursors, 5).to_pylist():
                    by_lane[row["lane"]].append(row)
            if step >= ahead:
                taken = [row for of_lane in by_lane for row in of_lane[5 * (step - ahead) :][:5]]
                assert engine.materialize([plan_of(step, taken)]).num_rows == 5 * lanes
        stats = engine.stats()
    assert stats["blocks_read"] == num_blocks
    assert num_blocks - 6 <= stats["blocks_read_again"] <= num_blocks


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_decoders_when_replaced_are_used_and_may_be_asked_for(decode_with: Callable[..., None]) -> None:
    own = installed_decoders()
    decode_with(image_size=len)
    assert isinstance(installed_decoders(), Decoders)
    assert installed_decoders().image_size is len
    assert installed_decoders().decode_audio is own.decode_audio
