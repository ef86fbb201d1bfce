"""Opening containers with PyAV: from bytes only, by a demuxer chosen here, so that no file names another one."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import av
from av.container import InputContainer

from ..sources.blocks import ContentError
from .container_bounds import is_cut
from .file_type import FileType, file_type, refused
from .limits import MediaLimits

_DEMUXERS: Mapping[FileType, str] = {
    FileType.MP4: "mp4",
    FileType.MATROSKA: "matroska",
    FileType.AVI: "avi",
    FileType.GIF: "gif",
    FileType.WAV: "wav",
    FileType.FLAC: "flac",
    FileType.MP3: "mp3",
    FileType.OGG: "ogg",
    FileType.AAC: "aac",
}
VIDEO_KINDS = (FileType.MP4, FileType.MATROSKA, FileType.AVI, FileType.GIF)
AUDIO_KINDS = (FileType.WAV, FileType.FLAC, FileType.MP3, FileType.OGG, FileType.MP4, FileType.AAC, FileType.MATROSKA)

# No protocol at all: a reference to a file or an address inside a container cannot be followed.
_OPTIONS = {"protocol_whitelist": ""}


def checked_kind(data: bytes, limits: MediaLimits, what: str, kinds: Collection[FileType]) -> FileType:
    """The kind of a file that may be opened.

    Args:
        data: The file.
        limits: Its size is checked.
        what: What it should be: "a video".
        kinds: What it may be.

    Raises:
        ContentError: It is empty, too large or of another kind.
    """
    limits.check_bytes(data)
    kind = file_type(data)
    if kind not in kinds:
        raise refused(kind, what, ", ".join(kinds))
    return kind


@contextmanager
def opened(data: bytes, kind: FileType) -> Iterator[InputContainer]:
    """Open a container for demuxing.

    Raises:
        ContentError: The demuxer does not take it, or an FFmpeg error leaves the block: what is in it is damaged.
    """
    try:
        with av.open(
            io.BytesIO(data), format=_DEMUXERS[kind], options=_OPTIONS, metadata_errors="replace"
        ) as container:
            assert isinstance(container, InputContainer)
            yield container
    except av.FFmpegError as error:
        raise ContentError(f"{'truncated' if is_cut(data, kind) else 'damaged'} {kind}") from error
