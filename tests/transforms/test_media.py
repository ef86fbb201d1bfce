"""Rows with images, video and audio: documents with their tokens in place, verdicts, and what changes a fingerprint."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.transforms import Measured, Transform
from loadmaster_flight.transforms.media import MediaAccess
from loadmaster_flight.wire.errors import SpecError, UnavailableError
from loadmaster_flight.wire.schemas import MediaKind, Verdict
from support.media_files import corners, encoded, grey_frames, sine, video, wav

from .conftest import ListBlock

IMAGE, VIDEO, AUDIO, START, END = 390, 391, 392, 393, 394
VISION = {"image_token": IMAGE, "video_token": VIDEO}
SOUND = {"audio_token": AUDIO, "merge": 5}
RUN = {"vocab_size": 400, "media": {"vision": VISION, "audio": SOUND}}

Build = Callable[..., Transform]


def picture(height: int = 56, width: int = 84) -> bytes:
    return encoded(corners(height, width), "PNG")


def clip(num_frames: int = 8) -> bytes:
    return video(grey_frames(num_frames, 56, 84), rate=4)


def measured(transform: Transform, *rows: Any, access: MediaAccess | None = None) -> Measured:
    block = ListBlock(list(rows))
    return transform.measure(block, np.arange(len(rows)), *([] if access is None else [access]))


def only(got: Measured) -> tuple[list[int], Any]:
    """Tokens and media of the only row, which is good."""
    assert got.reason == [None]
    assert got.media is not None
    return got.row_tokens(0).tolist(), got.media[0]


def test_measure_when_text_has_placeholders_puts_items_there_in_order(build: Build) -> None:
    transform = build(run=RUN, image=["first", "rest"], eos="</s>")
    row = {
        "text": "a<image> b <image><image>",
        "first": picture(28, 28 * 4),
        "rest": [picture(56, 56), {"bytes": picture()}],
    }
    tokens, media = only(measured(transform, row))
    plain = build(run=RUN, eos=False)
    a, b = (measured(plain, {"text": text}).tokens.tolist() for text in ("a", " b "))
    assert tokens == [*a, *[IMAGE] * 4, *b, *[IMAGE] * 4, *[IMAGE] * 6, 1]
    assert [item.grid for item in media.items] == [(1, 2, 8), (1, 4, 4), (1, 4, 6)]
    assert [item.token_start for item in media.items] == [1, 1 + 4 + len(b), 1 + 4 + len(b) + 4]
    assert media.patches == (16, 16, 24)
    assert media.size_bytes == 56 * 3 * 2 * 14**2


def test_measure_when_items_have_no_place_puts_them_first(build: Build) -> None:
    transform = build(run=RUN, image="image", audio="sound", bos="<s>", eos=False)
    row = {"text": "see", "image": picture(), "sound": wav(sine(16_000, 16_000), 16_000)}
    tokens, media = only(measured(transform, row))
    assert tokens[:17] == [0, *[IMAGE] * 6, *[AUDIO] * 10]
    assert [item.kind for item in media.items] == [MediaKind.IMAGE, MediaKind.AUDIO]
    assert [item.token_start for item in media.items] == [1, 7]
    assert media.items[1].grid == (50, 1, 1)


def test_measure_when_only_one_kind_has_places_puts_the_other_first(build: Build) -> None:
    transform = build(run=RUN, image="image", video="video", eos=False)
    tokens, media = only(measured(transform, {"text": "x<video>", "image": picture(), "video": clip()}))
    assert [item.kind for item in media.items] == [MediaKind.IMAGE, MediaKind.VIDEO]
    assert tokens[:6] == [IMAGE] * 6
    assert tokens[-12:] == [VIDEO] * 12
    assert media.items[1].grid == (2, 4, 6)
    assert media.patches == (24, 24, 24)


def test_measure_when_start_and_end_tokens_are_named_puts_them_around_each_item(build: Build) -> None:
    run = {"vocab_size": 400, "media": {"vision": VISION | {"start_token": START, "end_token": END}}}
    tokens, media = only(measured(build(run=run, image="image", eos=False), {"text": "a<image>a", "image": picture()}))
    assert tokens[1:9] == [START, *[IMAGE] * 6, END]
    assert media.items[0].token_start == 2


def test_measure_when_media_are_in_text_leaves_their_tokens_out_of_the_loss(build: Build) -> None:
    run = {"vocab_size": 400, "media": {"vision": VISION | {"start_token": START, "end_token": END}}}
    transform = build(run=run, image="image", bos="<s>", eos="</s>")
    got = measured(transform, {"text": "a<image>b<image>", "image": [picture(), picture()]})
    tokens = got.row_tokens(0)
    assert got.loss_spans is not None
    spans = got.loss_spans[0].reshape(-1, 2)
    counted = [tokens[start:stop].tolist() for start, stop in spans]
    assert not set(itertools.chain(*counted)) & {IMAGE, START, END}
    assert sum(map(len, counted)) == len(tokens) - 2 * (6 + 2)
    assert counted[-1] == [1]


def test_measure_when_there_is_no_text_the_media_are_the_sample(build: Build) -> None:
    got = measured(build(run=RUN, text=None, image="image", eos=False), {"image": picture()}, {"image": None})
    assert got.tokens.tolist() == [IMAGE] * 6
    assert got.loss_spans is not None
    assert got.loss_spans[0].tolist() == []
    assert got.reason == [None, "no media"]
    assert got.verdict.tolist() == [Verdict.OK, Verdict.SKIPPED]


def test_measure_when_a_row_has_no_media_it_is_a_text_like_any_other(build: Build) -> None:
    mixed, plain = build(run=RUN, image="image", max_tokens=5), build(run=RUN, max_tokens=5)
    rows = [{"text": "the weight over the hold"}, {"text": "a", "image": {"bytes": None, "path": None}}]
    got, expected = measured(mixed, *rows), measured(plain, *rows)
    assert got.tokens.tolist() == expected.tokens.tolist()
    assert got.media is None
    assert got.loss_spans is None


@pytest.mark.parametrize(
    ("text", "images", "reason"),
    [
        ("<image>", [], "the text has 1 places for image, the row has 0 image items"),
        ("<image><image>", [picture()], "the text has 2 places for image, the row has 1 image items"),
        ("<image>", [picture(), picture()], "the text has 1 places for image, the row has 2 image items"),
        ("x", [picture(), b"no image"], None),
        ("x", RowFault(reason="torn"), "torn"),
        ("x", 7, "media that is a path needs the source's files to be read"),
    ],
)
def test_measure_when_media_do_not_fit_says_why(build: Build, text: str, images: Any, reason: str | None) -> None:
    got = measured(build(run=RUN, image="image"), {"text": text, "image": images})
    assert got.verdict.tolist() == [Verdict.BAD]
    assert got.reason[0] is not None
    assert got.reason == [reason] if reason else got.reason[0].startswith("image 2 of 2: ")


def test_measure_when_a_kind_has_no_column_its_tag_is_text(build: Build) -> None:
    text = "<video> is a tag of HTML"
    got = measured(build(run=RUN, image="image"), {"text": text})
    assert got.tokens.tolist() == measured(build(run=RUN), {"text": text}).tokens.tolist()


def test_measure_when_document_with_media_is_too_long_skips_it_whole(build: Build) -> None:
    row = {"text": "the weight<image>", "image": picture()}
    whole, _ = only(measured(build(run=RUN, image="image"), row))
    got = measured(build(run=RUN, image="image", max_tokens=len(whole) - 1), row)
    assert got.verdict.tolist() == [Verdict.SKIPPED]
    expected = f"{len(whole)} tokens, longer than max_tokens {len(whole) - 1}, and media cannot be cut"
    assert got.reason == [expected]
    assert only(measured(build(run=RUN, image="image", max_tokens=len(whole)), row))[0] == whole


def test_measure_when_text_spells_a_placeholder_token_it_stays_text(build: Build) -> None:
    run = {"media": {"vision": {"image_token": "<|im_start|>", "video_token": "<|im_end|>"}}}
    row = {"text": "<|im_start|> said <image>", "image": picture()}
    tokens, media = only(measured(build(run=run, image="image", eos=False), row))
    assert tokens.count(2) == 6
    assert media.items[0].token_start == len(tokens) - 6
    trusting = measured(build(run=run, image="image", specials_in_text="token"), row)
    assert trusting.reason == ["text holds the token of a placeholder"]


def test_measure_when_chat_has_parts_and_texts_renders_items_where_they_are(build: Build) -> None:
    messages = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what is it?"}]},
        {"role": "assistant", "content": "a hold"},
        {"role": "user", "content": "and <image>?"},
        {"role": "assistant", "content": [{"type": "text", "text": "another"}]},
    ]
    transform = build(run=RUN, messages="messages", image="image", eos=False)
    got = measured(transform, {"messages": messages, "image": [picture(28, 112), picture(56, 56)]})
    tokens, media = only(got)
    texts = [
        {"role": "user", "content": "what is it?"},
        {"role": "assistant", "content": "a hold"},
        {"role": "user", "content": "and ?"},
        {"role": "assistant", "content": "another"},
    ]
    alone = measured(build(run=RUN, messages="messages", eos=False), {"messages": texts})
    assert transform.decode([t for t in tokens if t != IMAGE]) == transform.decode(alone.tokens)
    assert [item.grid for item in media.items] == [(1, 2, 8), (1, 4, 4)]
    spoken = [transform.decode(tokens[start:stop]) for start, stop in got.loss_spans[0].reshape(-1, 2)]
    assert spoken == ["a hold<|im_end|>", "another<|im_end|>"]
    assert tokens[media.items[0].token_start :][:4] == [IMAGE] * 4
    assert transform.decode(tokens[: media.items[0].token_start]) == "<|im_start|>user\n"


def test_measure_when_parts_hold_values_themselves_needs_no_column(build: Build) -> None:
    content = [
        {"type": "text", "text": "see"},
        {"type": "image", "image": picture(28, 112), "text": None},
        {"type": "image_url", "image_url": {"url": picture(56, 56)}},
        {"type": "audio", "bytes": wav(sine(1600, 16_000), 16_000)},
    ]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "yes"}]
    _, media = only(measured(build(run=RUN, messages="messages"), {"messages": messages}))
    assert [item.grid for item in media.items] == [(1, 2, 8), (1, 4, 4), (5, 1, 1)]


def test_measure_when_chat_has_items_without_place_the_first_user_turn_gets_them(build: Build) -> None:
    messages = [
        {"role": "system", "content": "help"},
        {"role": "user", "content": "see"},
        {"role": "assistant", "content": "yes"},
    ]
    transform = build(run=RUN, messages="messages", image="image")
    tokens, media = only(measured(transform, {"messages": messages, "image": picture()}))
    assert (transform.decode(tokens[: media.items[0].token_start]) or "").endswith("<|im_start|>user\n")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([{"type": "tool"}], "messages[0].content[0] must be a part of type text, image, video or audio, got 'tool'"),
        (7, "messages[0].content must be a string or a list of parts, got int"),
        ([{"type": "image"}], "the text has 1 places for image, the row has 0 image items"),
    ],
)
def test_measure_when_chat_is_not_one_says_where(build: Build, content: Any, reason: str) -> None:
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "yes"}]
    got = measured(build(run=RUN, messages="messages", image="image"), {"messages": messages})
    assert got.reason == [reason]
    assert got.verdict.tolist() == [Verdict.BAD]


def test_measure_when_template_drops_an_item_says_so(build: Build) -> None:
    template = (
        "{% for m in messages if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "yes"}]
    transform = build(run=RUN, messages="messages", image="image", chat_template=template)
    got = measured(transform, {"messages": messages, "image": picture()})
    assert got.reason[0] is not None
    assert got.reason[0].startswith("chat template: must write each image, video and audio once")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_measure_when_texts_and_items_alternate_every_token_is_where_it_belongs(build: Build, data: Any) -> None:
    texts = data.draw(st.lists(st.text(st.characters(codec="utf-8"), max_size=12), min_size=1, max_size=5))
    texts = [text.replace("<image>", "") for text in texts]
    if not "".join(texts).strip():
        texts[0] = "a"
    sizes = [data.draw(st.sampled_from([(28, 28 * 4), (56, 56), (56, 84)])) for _ in texts[1:]]
    transform = build(run=RUN, image="image", bos="<s>", eos="</s>")
    got = measured(transform, {"text": "<image>".join(texts), "image": [picture(*size) for size in sizes]})
    tokens = got.row_tokens(0).tolist()
    assert got.reason == [None]
    assert (transform.decode([t for t in tokens if t not in (IMAGE, 0, 1)]) or "") == "".join(texts)
    if sizes:
        media = got.media[0]
        runs = [(item.token_start, item.grid[1] * item.grid[2] // 4) for item in media.items]
        at = [place for start, num in runs for place in range(start, start + num)]
        assert at == [place for place, token in enumerate(tokens) if token == IMAGE]
        counted = [place for start, stop in got.loss_spans[0].reshape(-1, 2) for place in range(start, stop)]
        assert counted == [place for place, token in enumerate(tokens) if token != IMAGE]


@pytest.mark.parametrize("over_max", ["resize", "skip", "shard"])
def test_measure_when_an_image_has_too_many_patches_follows_the_spec(build: Build, over_max: str) -> None:
    run = {"vocab_size": 400, "media": {"vision": VISION | {"max_patches": 64, "over_max": over_max}}}
    got = measured(build(run=run, image="image"), {"text": "x", "image": picture(280, 140)})
    if over_max == "skip":
        assert got.reason == ["200 patches at once, over media.vision.max_patches 64"]
        assert got.verdict.tolist() == [Verdict.SKIPPED]
        return
    _, media = only(got)
    assert media.patches == ((40,) if over_max == "resize" else (40, 60, 40, 60))
    assert media.items[0].grid == ((1, 10, 4) if over_max == "resize" else (1, 20, 10))


def test_measure_when_storage_fails_says_nothing_about_the_row(build: Build) -> None:
    def read(value: object) -> bytes:
        raise ConnectionError("gone")

    with pytest.raises(UnavailableError, match="ConnectionError: gone"):
        measured(build(run=RUN, image="image"), {"text": "x", "image": "a.png"}, access=MediaAccess(read=read))


def test_measure_when_frames_are_of_one_size_counts_tokens_by_frame(build: Build) -> None:
    vision = VISION | {"layout": "frames", "size": [32, 48], "tokens_per_frame": 3}
    transform = build(run={"vocab_size": 400, "media": {"vision": vision}}, image="image", video="video", eos=False)
    tokens, media = only(measured(transform, {"text": "x", "image": picture(), "video": clip(12)}))
    assert [item.grid for item in media.items] == [(1, 1, 1), (6, 1, 1)]
    assert tokens[:21] == [IMAGE] * 3 + [VIDEO] * 18
    assert media.patches == (1,) * 7
    assert media.size_bytes == 7 * 3 * 32 * 48


@pytest.mark.parametrize(
    ("vision", "message"),
    [
        ({"image_token": "<|nothing|>"}, r"media\.vision\.image_token: must be a token of .*, or an id, got '<\|noth"),
        ({"image_token": 400}, r"media\.vision\.image_token: must be an id in \[0, 400\), got 400"),
        ({"start_token": "<no>"}, r"media\.vision\.start_token: must be a token of"),
    ],
)
def test_build_when_a_token_is_unknown_names_field_and_rule(build: Build, vision: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        build(run={"vocab_size": 400, "media": {"vision": VISION | vision}}, image="image")


def test_build_when_chats_may_lack_media_unknown_tokens_make_the_row_bad(build: Build) -> None:
    run = {"media": {"vision": {"image_token": "<|im_start|>", "video_token": "<|none|>"}}}
    transform = build(run=run, messages="messages")
    content = [{"type": "video", "video": clip()}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "yes"}]
    assert measured(transform, {"messages": messages}).reason == ["media of the run names no token for video"]


def test_fingerprint_when_the_run_gains_media_stays_for_texts_and_changes_for_media(build: Build) -> None:
    assert build(run=RUN).fingerprint == build(run={"vocab_size": 400}).fingerprint
    base = build(run=RUN, image="image").fingerprint
    other_vision = {"vocab_size": 400, "media": {"vision": VISION | {"max_pixels": 50_000}, "audio": SOUND}}
    other_audio = {"vocab_size": 400, "media": {"vision": VISION, "audio": SOUND | {"hop": 160}}}
    other_limit = {"vocab_size": 400, "media": {"vision": VISION, "audio": SOUND, "max_bytes": 1000}}
    assert build(run=other_vision, image="image").fingerprint != base
    assert build(run=other_audio, image="image").fingerprint == base
    assert build(run=other_limit, image="image").fingerprint != base
    assert build(run=RUN, image="picture").fingerprint != base
    assert build(run=RUN, image="image", audio="sound").fingerprint != base
