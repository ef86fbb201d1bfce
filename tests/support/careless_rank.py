"""A rank that ends without closing its stream: python careless_rank.py TARGET RANK WORLD_SIZE [fail]."""

from __future__ import annotations

import sys

import loadmaster


def main(target: str, rank: str, world_size: str, *how: str) -> None:
    stream = loadmaster.connect(target, rank=int(rank), world_size=int(world_size), framework="numpy", prefetch=64)
    steps = [next(stream).step for _ in range(3)]
    globals()["kept"] = stream  # referred to until the interpreter is taken down
    print(steps, flush=True)
    if how:
        raise SystemExit(f"failed after {steps[-1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
