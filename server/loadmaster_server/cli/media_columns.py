"""Guessing which columns of a source hold images, videos and audio, from a few rows."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from loadmaster_flight.transforms.file_type import FileType, file_type

from .columns import values_by_path

MEDIA_KINDS = ("image", "video", "audio")
_KIND_OF_TYPE = {
    **dict.fromkeys((FileType.JPEG, FileType.PNG, FileType.WEBP, FileType.GIF), "image"),
    **dict.fromkeys((FileType.MP4, FileType.MATROSKA, FileType.AVI), "video"),
    **dict.fromkeys((FileType.WAV, FileType.FLAC, FileType.MP3, FileType.OGG, FileType.AAC), "audio"),
}
_KIND_OF_EXTENSION = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "gif"), "image"),
    **dict.fromkeys(("mp4", "m4v", "mov", "webm", "mkv", "avi"), "video"),
    **dict.fromkeys(("wav", "flac", "mp3", "ogg", "opus", "m4a", "aac"), "audio"),
}
CAPTION_FILES = ("metadata.jsonl", "metadata.csv", "captions.tsv")


def is_media_file(name: str) -> bool:
    """Whether a file's extension says that it is an image, a video or audio."""
    return posixpath.splitext(name)[1][1:].lower() in _KIND_OF_EXTENSION


def without_media(rows: Sequence[Mapping[str, object]], media: Mapping[str, Sequence[str]]) -> list[dict[str, object]]:
    """Rows without what holds or names the media of some columns."""
    names = {path.split(".")[0] for paths in media.values() for path in paths} | ({"file_name"} if media else set())
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def guess_media(rows: Sequence[Mapping[str, object]]) -> dict[str, list[str]]:
    """Columns whose values are all media of one kind, by kind; names of files count where a struct holds them."""
    found: dict[str, list[str]] = {}
    for path, values in values_by_path(rows).items():
        column, _, part = path.rpartition(".")
        kinds = {_kind_of(value, is_in_struct=part == "path") for value in values}
        kind = kinds.pop() if len(kinds) == 1 else None
        name = column if part in ("bytes", "path") and column else path
        if kind is not None and name not in found.setdefault(kind, []):
            found[kind].append(name)
    return found


def _kind_of(value: object, *, is_in_struct: bool) -> str | None:
    """Of a list, the kind of its first value."""
    if isinstance(value, (list, tuple)):
        return _kind_of(value[0], is_in_struct=is_in_struct) if value else None
    if isinstance(value, Mapping):
        return _kind_of(value.get("bytes"), is_in_struct=True)
    if isinstance(value, bytes):
        return _KIND_OF_TYPE.get(file_type(value))
    if isinstance(value, str) and is_in_struct:
        return _KIND_OF_EXTENSION.get(posixpath.splitext(value)[1][1:].lower())
    return None
