"""A peer of recovery.py: mosaicml-streaming, in its own environment. What going on after so many batches takes.

python resume_mosaic.py FOLDER STEPS BATCH
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset

SOURCES = {"web": 0.6, "code": 0.3, "books": 0.1}
WORKERS = 2


def write(folder: Path, num: int) -> None:
    """Samples of about 100 made-up token ids."""
    for ordinal, (name, share) in enumerate(SOURCES.items()):
        rng = np.random.default_rng(ordinal)
        with MDSWriter(out=str(folder / "mds" / name), columns={"ids": "ndarray:int32"}) as out:
            for _ in range(int(num * share)):
                out.write({"ids": rng.integers(1000, size=100, dtype=np.int32)})


def loader(folder: Path, batch: int) -> StreamingDataLoader:
    """Shuffled, three streams."""
    streams = [Stream(local=str(folder / "mds" / name), proportion=share) for name, share in SOURCES.items()]
    dataset = StreamingDataset(streams=streams, shuffle=True, batch_size=batch, num_canonical_nodes=1)
    return StreamingDataLoader(dataset, batch_size=batch, num_workers=WORKERS)


def go_on(folder: Path, batch: int) -> None:
    """In a new process."""
    text = (folder / "mds.state").read_text()
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
    write(folder, int((steps + 200) * batch * 1.1))
    reading = loader(folder, batch)
    for step, _ in enumerate(reading, 1):
        if step == steps:
            break
    (folder / "mds.state").write_text(json.dumps(reading.state_dict()))
    subprocess.run([sys.executable, *sys.argv, "again"], check=True)


if __name__ == "__main__":
    main()
