"""Streams of decompressed bytes out of .gz and .zst files, which tell a cut or corrupt archive from an I/O error."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from .blocks import ContentError
from .files import ObservedFile, ShardFile, read_range

PIECE_BYTES = 64 << 10
_FETCH_BYTES = 1 << 20


class Compression(StrEnum):
    GZIP = "gzip"
    ZSTD = "zstd"


class PieceStream(Protocol):
    """Decompressed bytes in pieces. Not thread-safe."""

    def next_piece(self) -> bytes:
        """At most PIECE_BYTES; empty at the end.

        Raises:
            ContentError: The archive is cut or corrupt.
            OSError: The bytes do not arrive.
        """

    def snapshot(self) -> PieceStream | None:
        """A copy that goes on from here, where the format allows one."""

    def consumed_bytes(self) -> int:
        """Compressed bytes taken so far, about."""

    def close(self) -> None: ...


def open_pieces(file: ShardFile, compression: Compression) -> PieceStream:
    """A stream from the beginning of a compressed file."""
    return GzipPieces(file) if compression is Compression.GZIP else ZstdPieces(file)


@dataclass(slots=True, kw_only=True)
class _GzipState:
    """Where inflating stands: the inflater, and the file offsets of the input that it has not taken yet."""

    inflater: Any
    taken: int = 0
    fetched: int = 0
    is_between_members: bool = False


class GzipPieces:
    """gzip, any number of members. zlib's inflater can be copied, so that reading can restart in the middle."""

    def __init__(self, file: ShardFile, state: _GzipState | None = None) -> None:
        self._file = file
        self._state = state or _GzipState(inflater=_inflater())
        self._input: Any = None
        self._pending = b""

    def next_piece(self) -> bytes:
        while True:
            if not self._pending and not self._fetch():
                return self._last_piece()
            if self._state.is_between_members and not self._start_member():
                continue
            piece = self._inflate()
            if piece:
                return piece

    def snapshot(self) -> PieceStream:
        return GzipPieces(self._file, replace(self._state, inflater=self._state.inflater.copy()))

    def consumed_bytes(self) -> int:
        return self._state.taken

    def close(self) -> None:
        if self._input is not None:
            self._input.close()
            self._input = None

    def _fetch(self) -> bool:
        """Read the input that is due; a restarted stream first what its origin had fetched and not taken."""
        state = self._state
        if self._input is None:
            self._input = self._file.open_unmanaged()
        size_bytes = (state.fetched - state.taken) or min(_FETCH_BYTES, self._file.size_bytes - state.taken)
        self._pending = read_range(self._input, state.taken, size_bytes)
        state.fetched = state.taken + size_bytes
        return bool(self._pending)

    def _last_piece(self) -> bytes:
        if self._state.is_between_members:
            return b""
        rest: bytes = self._state.inflater.flush()
        self._state.inflater = _inflater()
        if rest:
            return rest
        raise ContentError(f"cut archive: {self._file.size_bytes} bytes end inside a gzip member")

    def _start_member(self) -> bool:
        """Skip padding between members; False where there was nothing else."""
        self._take(self._pending.lstrip(b"\0"))
        if self._pending:
            self._state.inflater, self._state.is_between_members = _inflater(), False
        return bool(self._pending)

    def _inflate(self) -> bytes:
        inflater = self._state.inflater
        try:
            piece: bytes = inflater.decompress(self._pending, PIECE_BYTES)
        except zlib.error as error:
            raise ContentError(f"corrupt archive: {error}") from error
        self._state.is_between_members = inflater.eof
        self._take(inflater.unused_data if inflater.eof else inflater.unconsumed_tail)
        return piece

    def _take(self, rest: bytes) -> None:
        self._state.taken = self._state.fetched - len(rest)
        self._pending = rest


def _inflater() -> Any:
    return zlib.decompressobj(wbits=31)


class ZstdPieces:
    """zstd, any number of frames, through Arrow's codec."""

    def __init__(self, file: ShardFile) -> None:
        self._file = file
        self._given_bytes = 0
        self._fault: ContentError | None = None
        self._open()

    def next_piece(self) -> bytes:
        if self._file.size_bytes == 0:
            raise ContentError("cut archive: the file is empty")
        if self._fault is not None:
            raise self._fault
        try:
            piece = self._read(PIECE_BYTES)
        except ContentError as error:
            self._fault, piece = error, self._rest()
            if not piece:
                raise
        self._given_bytes += len(piece)
        return piece

    def snapshot(self) -> None:
        """Arrow's decompressor cannot be copied."""

    def consumed_bytes(self) -> int:
        return self._source.tell()

    def close(self) -> None:
        self._source.close()

    def _open(self) -> None:
        self._observed = ObservedFile(self._file.open_unmanaged())
        self._source = io.BufferedReader(self._observed, _FETCH_BYTES)
        self._stream = pa.CompressedInputStream(pa.PythonFile(self._source, mode="r"), "zstd")

    def _read(self, size_bytes: int) -> bytes:
        try:
            return bytes(self._stream.read(size_bytes))
        except (OSError, pa.ArrowException) as error:
            if self._observed.io_error is not None:
                raise self._observed.io_error from error
            word = "cut" if "runcated" in str(error) else "corrupt"
            raise ContentError(f"{word} archive: {error}") from error

    def _rest(self) -> bytes:
        """What can still be read before the fault: the read that met it has thrown its first bytes away."""
        self.close()
        self._open()
        passed = 0
        while passed < self._given_bytes:
            passed += len(self._read(min(PIECE_BYTES, self._given_bytes - passed)))
        rest = bytearray()
        try:
            while byte := self._read(1):
                rest += byte
        except ContentError:
            pass
        return bytes(rest)
