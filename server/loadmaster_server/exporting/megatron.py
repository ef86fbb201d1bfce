"""Index files of Megatron-LM: tokens.bin and tokens.idx.

# D = sequences, M = documents
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster.batch import Batch, Microbatch

NAME = "tokens"
HEADER = b"MMIDIDX\x00\x00"
VERSION = 1
TYPES: dict[int, np.dtype[Any]] = {4: np.dtype("<i4"), 8: np.dtype("<u2")}
"""Type codes of the index that tokens are written in."""
SMALL_VOCAB = 65_500


class IndexedWriter:
    """Writes documents as sequences of a Megatron-LM dataset, in the order in which they come. `close` it.

    A sequence is one document as it lies in a microbatch (a piece of one, where it was cut): its real tokens, without
    padding. A document of the index is one microbatch, so the sequences of microbatch m are those from
    document_indices[m] to document_indices[m + 1]. The format has no place for labels: loss spans are not kept.

    Args:
        folder: Empty; gets tokens.bin and tokens.idx: the path prefix is folder/tokens.
        vocab_size: Ids are below it; two bytes a token below 65,500, as Megatron-LM chooses, else four. None: four.
    """

    def __init__(self, folder: Path, *, vocab_size: int | None) -> None:
        self._folder = folder
        self._code = 8 if vocab_size is not None and vocab_size < SMALL_VOCAB else 4
        self._dtype = TYPES[self._code]
        self._lengths: list[int] = []
        self._document_ends = [0]
        self._file = (folder / f"{NAME}.bin").open("wb")

    def add(self, batch: Batch, microbatch: Microbatch, number: int) -> None:
        """Append the documents of a microbatch."""
        tokens = np.asarray(microbatch.tokens)
        lengths = microbatch.documents.num_tokens.tolist()
        for start, length in zip(np.asarray(microbatch.cu_seqlens)[: len(lengths)].tolist(), lengths, strict=True):
            self._file.write(tokens[start : start + length].astype(self._dtype).tobytes())
        self._lengths += lengths
        self._document_ends.append(len(self._lengths))

    def close(self) -> dict[str, Any]:
        """Write the index; returns what the export's own notes say of it. Idempotent."""
        self._file.close()
        lengths_D = np.array(self._lengths, "<i4")
        pointers_D = np.cumsum(lengths_D, dtype="<i8") * self._dtype.itemsize - lengths_D * self._dtype.itemsize
        ends_M = np.array(self._document_ends, "<i8")
        with (self._folder / f"{NAME}.idx").open("wb") as file:
            file.write(HEADER + struct.pack("<QBQQ", VERSION, self._code, len(lengths_D), len(ends_M)))
            for array in (lengths_D, pointers_D.astype("<i8"), ends_M):
                file.write(array.tobytes())
        return {
            "path_prefix": NAME,
            "sequences": len(lengths_D),
            "documents": len(ends_M) - 1,
            "dtype": self._dtype.name,
        }
