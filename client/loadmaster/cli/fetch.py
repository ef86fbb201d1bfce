"""`loadmaster fetch`: what a training loop would get, from the shell."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.tls import add_tls

from ..batch import Batch
from ..connecting import connect
from ..stream import Stream

BAR_CHARS = 24


def main(argv: Sequence[str]) -> int:
    """Fetch batches of one rank and say what they are."""
    args = _parse(argv)
    stream = connect(
        args.target,
        run=args.run,
        rank=args.rank,
        world_size=args.world_size,
        stream=args.stream,
        resume=_load(args.state),
        replay=not args.no_replay,
        skip=args.skip,
        prefetch=args.prefetch,
        timeout_s=args.timeout_s,
        framework="numpy",
        tls_ca=args.tls_ca,
        tls_cert=args.tls_cert,
        tls_key=args.tls_key,
    )
    progress = Progress(args.steps, is_json=args.json)
    with stream:
        for batch in itertools.islice(stream, args.steps):
            progress.show(batch, stream)
            _save(args.state, stream)
    progress.finish(stream)
    return 0


class Progress:
    """One line a step (JSON), or one line that is written over."""

    def __init__(self, num_steps: int | None, *, is_json: bool) -> None:
        self._num_steps, self._is_json = num_steps, is_json
        self._is_live = not is_json and sys.stderr.isatty()
        self._start_s = time.monotonic()

    def show(self, batch: Batch, stream: Stream) -> None:
        """Tell of one step."""
        if self._is_json:
            print(json.dumps(_line(batch, stream.stats.wait_ms)), flush=True)
        elif self._is_live:
            sys.stderr.write("\r\x1b[K" + self._text(stream))
            sys.stderr.flush()

    def finish(self, stream: Stream) -> None:
        """Tell of all steps together."""
        if not self._is_json:
            sys.stderr.write(("\r\x1b[K" if self._is_live else "") + self._text(stream) + "\n")

    def _text(self, stream: Stream) -> str:
        stats = stream.stats
        seconds = max(time.monotonic() - self._start_s, 1e-9)
        wait_ms = stats.total_wait_ms / max(stats.num_steps, 1)
        of = f"/{self._num_steps}" if self._num_steps else ""
        bar = _bar(stats.num_steps / self._num_steps) if self._num_steps else ""
        return (
            f"{bar}step {stats.num_steps}{of}  {stats.num_tokens / seconds:,.0f} tokens/s  wait {wait_ms:.1f} ms a step"
        )


def _bar(share: float) -> str:
    full = round(BAR_CHARS * min(share, 1.0))
    return "[" + "#" * full + "." * (BAR_CHARS - full) + "] "


def _line(batch: Batch, wait_ms: float) -> dict[str, Any]:
    return {
        "step": batch.step,
        "sample_ids": batch.sample_ids,
        "num_tokens": batch.num_tokens,
        "digest": batch.digest(),
        "wait_ms": round(wait_ms, 3),
    }


def _load(path: Path | None) -> dict[str, Any] | None:
    if path is None or not path.exists():
        return None
    try:
        state = json.loads(path.read_text())
    except ValueError as error:
        raise BadRequestError(f"--state {path} must be a file that fetch has written: {error}") from error
    if not isinstance(state, dict):
        raise BadRequestError(f"--state {path} must be a file that fetch has written, got {state!r}")
    return state


def _save(path: Path | None, stream: Stream) -> None:
    """Write the state as a whole: a kill leaves the old one or the new one."""
    if path is not None:
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(stream.state_dict()))
        part.replace(path)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadmaster fetch", description="Read batches of a run from the shell.")
    parser.add_argument("target", help="https://host:port of a planner, or the path of a run spec")
    parser.add_argument("--run", help="name of the run; by default the only one there is")
    parser.add_argument("--rank", type=int, help="global rank; by default RANK, else 0")
    parser.add_argument("--world-size", type=int, help="number of ranks; by default WORLD_SIZE, else 1")
    parser.add_argument("--stream", default="train", help="train, or an evaluation pass")
    parser.add_argument("--steps", type=int, help="how many; by default to the end of the stream")
    parser.add_argument("--state", type=Path, help="go on from this file if it is there, and keep it up to date")
    parser.add_argument("--no-replay", action="store_true", help="plan anew what was bound before the interruption")
    parser.add_argument("--skip", type=int, nargs=2, metavar=("A", "B"), help="leave out the steps from A up to B - 1")
    parser.add_argument("--json", action="store_true", help="one JSON object a step")
    parser.add_argument("--prefetch", type=int, default=2, help="steps fetched ahead")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="deadline of each wait")
    add_tls(parser, serves=False)
    return parser.parse_args(argv)
