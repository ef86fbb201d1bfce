"""Frames: the header of every message of a rank's stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.frames import Frame, FrameFlag

frames = st.builds(
    Frame,
    flags=st.sampled_from(list(FrameFlag)),
    generation=st.integers(0, 2**32 - 1),
    step=st.integers(0, 2**64 - 1),
    build_us=st.integers(0, 2**64 - 1),
    text=st.text(max_size=200),
)


@given(frame=frames, padding=st.binary(max_size=16))
def test_unpack_when_packed_then_the_frame_comes_back_and_padding_is_left_alone(frame: Frame, padding: bytes) -> None:
    assert Frame.unpack(frame.pack() + padding) == frame


def test_pack_when_the_text_is_long_then_it_is_cut_and_can_be_read() -> None:
    frame = Frame(flags=FrameFlag.HEARTBEAT, generation=1, step=2, text="é" * 5000)
    read = Frame.unpack(frame.pack())
    assert len(frame.pack()) < 1100
    assert read.text == "é" * 500


@given(data=st.binary(max_size=64))
def test_unpack_when_it_is_any_bytes_then_only_our_error_comes(data: bytes) -> None:
    with pytest.raises(BadRequestError, match="frame"):
        Frame.unpack(data)


def test_unpack_when_of_another_version_then_both_versions_are_named() -> None:
    data = bytearray(Frame(flags=FrameFlag.LAST, generation=1, step=2).pack())
    data[2] = 9
    with pytest.raises(BadRequestError, match="must be b'LM' 1, got b'LM' 9"):
        Frame.unpack(bytes(data))
