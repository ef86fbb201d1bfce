"""A peer of recovery.py: litdata, in its own environment. What going on after so many batches takes.

python resume_litdata.py FOLDER STEPS BATCH
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset
from litdata.streaming.writer import BinaryWriter

SOURCES = {"web": 0.6, "code": 0.3, "books": 0.1}
WORKERS = 2
CHUNK_BYTES = 1 << 20


def write(folder: Path, num: int) -> None:
    """Samples of about 100 made-up token ids."""
    for ordinal, (name, share) in enumerate(SOURCES.items()):
        rng = np.random.default_rng(ordinal)
        target = folder / "lit" / name
        target.mkdir(parents=True)
        writer = BinaryWriter(str(target), chunk_bytes=CHUNK_BYTES)
        for index in range(int(num * share)):
            writer.add_item(index, {"ids": rng.integers(1000, size=100, dtype=np.int32)})
        writer.done()
        writer.merge()


def loader(folder: Path, batch: int) -> StreamingDataLoader:
    """Shuffled, three sources by weight."""
    sources = [StreamingDataset(str(folder / "lit" / name), shuffle=True) for name in SOURCES]
    dataset = CombinedStreamingDataset(sources, weights=list(SOURCES.values()), iterate_over_all=False, seed=1)
    return StreamingDataLoader(dataset, batch_size=batch, num_workers=WORKERS)


def go_on(folder: Path, batch: int) -> None:
    """In a new process."""
    text = (folder / "lit.state").read_text()
    start_s = time.monotonic()
    again = loader(folder, batch)
    again.load_state_dict(json.loads(text))
    next(iter(again))
    found = {"resume_s": time.monotonic() - start_s, "state_bytes": len(text.encode()), "workers": WORKERS}
    print(json.dumps(found), flush=True)


def main() -> None:
    folder, steps, batch = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if len(sys.argv) > 4:
        go_on(folder, batch)
        return
    write(folder, int((steps + 200) * batch * 1.2))
    reading = loader(folder, batch)
    for step, _ in enumerate(reading, 1):
        if step == steps:
            break
    (folder / "lit.state").write_text(json.dumps(reading.state_dict()))
    subprocess.run([sys.executable, *sys.argv, "again"], check=True)


if __name__ == "__main__":
    main()
