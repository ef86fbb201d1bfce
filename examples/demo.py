"""What `make demo` runs: Loadmaster on this machine, four ranks that train a small GPT, and the mixture they got.

python examples/demo.py [--exit] [--ranks 4] [--spec examples/demo.yaml]

It is a script around two commands that you can give by hand: `loadmaster up RUN.yaml` and, once per rank,
`python examples/train_gpt.py URL --run-name NAME`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadmaster_flight.spec import RunSpec, load_run_spec
from loadmaster_flight.wire.control import StreamView
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_flight.wire.http import PlannerClient

HERE = Path(__file__).parent
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
RANK_PROGRAM = """\
import runpy, sys, threading
from loadmaster_flight.wire.ending import end_with_parent
end_with_parent(threading.Event())
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the script that it is given, and ends when its standard input does: a demo that is killed leaves nothing."""


class DemoError(Exception):
    """Something that the demo started has failed; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A child process and the file that holds what it printed."""

    name: str
    process: subprocess.Popen[bytes]
    log_path: Path

    def check(self) -> bool:
        """Whether it has ended well.

        Raises:
            DemoError: It failed; carries the end of its log.
        """
        if self.process.poll():
            raise DemoError(self.failure())
        return self.process.returncode == 0

    def failure(self) -> str:
        """How it ended, and the end of its log."""
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        tail = "\n".join(self.log_path.read_text(errors="replace").splitlines()[-12:])
        return f"{self.name} {how}. The end of {self.log_path}:\n{tail or '(nothing)'}"

    def stop(self) -> None:
        """End it: asked first, killed after a while."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    options = parse(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="loadmaster-demo-"))
    try:
        with contextlib.ExitStack() as programs:
            run_demo(options, folder, programs)
    except (DemoError, LoadmasterError) as error:
        print(f"demo: {error}\nall else is stopped; logs are kept in {folder}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def run_demo(options: argparse.Namespace, folder: Path, programs: contextlib.ExitStack) -> None:
    """Start everything, train, report, and stay up unless told to end."""
    spec = load_run_spec(options.spec)
    print(f"starting the planner, {options.loaders} loader(s) and {options.constructors} constructor(s)", flush=True)
    up, facts = start_loadmaster(options, folder, programs)
    url = facts["url"]
    print(f"planner at {url}, run {spec.run}; {options.ranks} ranks are starting", flush=True)
    print(f"console, good once and for ten minutes: {facts['sign_in']}", flush=True)
    train(options, spec, url, folder, programs, up)
    print_mixture(spec, url)
    if not options.exit:
        print(f"\nstill up: planner at {url}. Ctrl-C stops everything.", flush=True)
        print(f"another link for the console: loadmaster sign-in --state-dir {folder / 'state'}", flush=True)
        while not up.check():
            time.sleep(0.5)


def start_loadmaster(
    options: argparse.Namespace, folder: Path, programs: contextlib.ExitStack
) -> tuple[Program, dict[str, str]]:
    """Run `loadmaster up` and wait for the address of its planner, and for a link to sign in with."""
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "loadmaster", "up", str(options.spec), "--ready-file", str(ready)]
    command += ["--loaders", str(options.loaders), "--constructors", str(options.constructors), "--parent-pipe"]
    up = start("loadmaster up", [*command, "--state-dir", str(folder / "state")], folder, programs)
    for _ in until(READY_TIMEOUT_S, f"loadmaster up to be ready (log: {up.log_path})"):
        if up.check():
            raise DemoError("loadmaster up ended before it was ready")
        if ready.exists():
            break
    facts = json.loads(ready.read_text())
    return up, {name: str(facts[name]) for name in ("url", "sign_in")}


def train(
    options: argparse.Namespace,
    spec: RunSpec,
    url: str,
    folder: Path,
    programs: contextlib.ExitStack,
    up: Program,
) -> None:
    """Run the trainer once per rank until all are done; shows what rank 0 prints."""
    command = [sys.executable, "-c", RANK_PROGRAM, str(HERE / "train_gpt.py"), url, "--run-name", spec.run]
    command += ["--checkpoint", str(folder / "gpt.pt"), *(f"--evaluate={name}" for name in spec.evaluation)]
    world = {"WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [start(f"rank {rank}", command, folder, programs, RANK=str(rank), **world) for rank in range(options.ranks)]
    with following(ranks[0].log_path):
        while not all_done(ranks):
            if up.check():
                raise DemoError("loadmaster up ended while the ranks were training")
            time.sleep(0.1)


def all_done(ranks: list[Program]) -> bool:
    """Whether all ranks have ended well.

    Raises:
        DemoError: Some failed; one that fails takes others with it, so all of them are told.
    """
    failed = [rank for rank in ranks if rank.process.poll()]
    if failed:
        raise DemoError("\n\n".join(rank.failure() for rank in failed))
    return all(rank.process.returncode == 0 for rank in ranks)


def start(name: str, command: list[str], folder: Path, programs: contextlib.ExitStack, **env: str) -> Program:
    """Start a program that ends with the demo: its standard input is a pipe that the demo holds.

    In a session of its own: Ctrl-C reaches only the demo itself.
    """
    log_path = folder / f"{name.replace(' ', '-')}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
            start_new_session=True,
        )
    program = Program(name=name, process=process, log_path=log_path)
    programs.callback(program.stop)
    return program


@contextlib.contextmanager
def following(path: Path) -> Iterator[None]:
    """Print the lines of a growing file, to its end, while the block runs."""
    done = threading.Event()

    def follow() -> None:
        with path.open(errors="replace") as log:
            while True:
                was_done = done.is_set()
                for line in log:
                    print(line, end="", flush=True)
                if was_done:
                    return
                done.wait(0.1)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def print_mixture(spec: RunSpec, url: str) -> None:
    """The tokens that each source got, against its share of the mixture summed over the steps."""
    view = PlannerClient(url).get(f"/runs/{spec.run}/streams/train", StreamView)
    total = sum(view.source_tokens) or 1
    targets = target_shares(spec, view.planned)
    print(f"\nmixture over {view.planned} steps, {total:,} tokens")
    print(f"{'source':<12}{'tokens':>12}{'achieved':>12}{'target':>12}")
    for name, tokens in zip(view.source_names, view.source_tokens, strict=True):
        if name in spec.mixture.weights:
            print(f"{name:<12}{tokens:>12,}{tokens / total:>12.2%}{targets[name]:>12.2%}")


def target_shares(spec: RunSpec, num_steps: int) -> dict[str, float]:
    """Mean over the steps of each source's weight, normalised at every step."""
    shares = dict.fromkeys(spec.source_names, 0.0)
    for step in range(num_steps):
        weights = {name: ramp.at(step) for name, ramp in spec.mixture.weights.items()}
        for name, weight in weights.items():
            shares[name] += weight / sum(weights.values()) / num_steps
    return shares


def until(timeout_s: float, what: str) -> Iterator[None]:
    """Yield about ten times a second.

    Raises:
        DemoError: Time is up; names what was waited for.
    """
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        yield
        time.sleep(0.1)
    raise DemoError(f"waited {timeout_s:.0f} s for {what}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Loadmaster, four training ranks and the mixture they got.")
    parser.add_argument("--exit", action="store_true", help="end when the training is done")
    parser.add_argument("--spec", type=Path, default=HERE / "demo.yaml", help="the run spec")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--loaders", type=int, default=2)
    parser.add_argument("--constructors", type=int, default=1)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
