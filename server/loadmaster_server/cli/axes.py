"""Mesh axes as arguments of a command: `dp=512,pp=4`."""

from __future__ import annotations

import argparse

AXES = ("pp", "dp", "cp", "tp")


def mesh_sizes(text: str) -> dict[str, int]:
    """Axis -> size of `dp=512,pp=4`, for argparse."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        axis, _, size = part.partition("=")
        if axis not in AXES or axis in sizes or not size.isdecimal() or int(size) < 1:
            raise argparse.ArgumentTypeError(f"must be axis=size of {', '.join(AXES)}, each once, got {part!r}")
        sizes[axis] = int(size)
    return sizes
