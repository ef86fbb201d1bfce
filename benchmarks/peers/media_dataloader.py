"""The peer of media.py: torch's DataLoader, whose workers call the same decoder and write the same patches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

Decode = Callable[[bytes], npt.NDArray[np.uint8]]


class MediaDataset(Dataset[torch.Tensor]):
    """Files in memory, decoded to patches one by one."""

    def __init__(self, files: Sequence[bytes], decode: Decode) -> None:
        self._files, self._decode = files, decode

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self._decode(self._files[index]))


def in_one(parts: list[torch.Tensor]) -> torch.Tensor:
    """Patches of a batch, put together in shared memory at once, as torch's own collate function does."""
    shape = (sum(len(part) for part in parts), parts[0].shape[1])
    storage = parts[0].untyped_storage()._new_shared(shape[0] * shape[1], device=parts[0].device)
    return torch.cat(parts, out=parts[0].new(storage).resize_(shape))


class DataLoaderPeer:
    """Two workers that stay between rounds."""

    def __init__(self, files: Sequence[bytes], decode: Decode, batch_size: int) -> None:
        self._loader = DataLoader(
            MediaDataset(files, decode),
            batch_size=batch_size,
            num_workers=2,
            collate_fn=in_one,
            persistent_workers=True,
            multiprocessing_context="fork",
        )

    def batches(self) -> Iterator[torch.Tensor]:
        """One pass over the files."""
        yield from self._loader
