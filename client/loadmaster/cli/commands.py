"""Finding and running a sub-command."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points, version

from loadmaster_flight.wire.errors import LoadmasterError

COMMANDS_GROUP = "loadmaster.commands"
_OWN = ("diff", "doctor", "explain", "fetch", "resume", "status", "verify")
BUILT_IN = {name: f"loadmaster.cli.{name}" for name in _OWN}
ABOUT = {
    "add-source": "freeze another source of a run while it trains",
    "certificates": "make a private authority and certificates for TLS",
    "check": "validate a run spec and take stock of its sources",
    "constructor": "run a Data Constructor",
    "create": "create a run at a planner that runs already",
    "diff": "tell where two runs part",
    "doctor": "look for what will not work here, and say how to put it right",
    "export": "write steps of a run as MDS or Megatron files",
    "explain": "tell what a step holds, or where a sample went, and why",
    "fetch": "read batches of a run from the shell",
    "init": "write a starter spec for a folder of data",
    "loader": "run a Source Loader",
    "peek": "show samples as a run would transform them",
    "planner": "run the planner",
    "resume": "let a paused or failed run go on",
    "sign-in": "print a one-time link that opens the console",
    "simulate": "plan steps on a mesh that is not there, and time them",
    "status": "show what a planner's runs and processes are doing",
    "token": "hand out, list and revoke API tokens",
    "up": "start a whole run on this machine",
    "verify": "prove that every piece was delivered exactly once",
}
FAILED, INTERRUPTED = 2, 130
Command = Callable[[Sequence[str]], int | None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run `loadmaster COMMAND ARGS...`.

    Returns:
        The exit code: 0, 2 with one line on stderr for what went wrong, 130 after Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else FAILED
    if arguments[0] == "--version":
        print(f"loadmaster {version('loadmaster')}")
        return 0
    name, rest = arguments[0], arguments[1:]
    try:
        return _command(name)(rest) or 0
    except LoadmasterError as error:
        return _fail("; ".join([error.message, *getattr(error, "__notes__", [])]))
    except ImportError as error:
        return _fail(
            f'{name} needs {error.name or "more"}, which is missing: pip install "loadmaster[server]" ({error})'
        )
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def _command(name: str) -> Command:
    command: Command
    if name in BUILT_IN:
        command = importlib.import_module(BUILT_IN[name]).main
        return command
    found = {entry.name: entry for entry in entry_points(group=COMMANDS_GROUP)}
    if name not in found:
        raise _Unknown(_unknown(name, [*BUILT_IN, *found]))
    command = found[name].load()
    return command


class _Unknown(LoadmasterError):
    code = "BAD_REQUEST"


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
    return f"no such command {name!r}: {hint}"


def _usage() -> str:
    names = sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=COMMANDS_GROUP))})
    lines = [f"  {name:<12} {ABOUT.get(name, '')}".rstrip() for name in names]
    return "\n".join(["usage: loadmaster COMMAND ...", "", *lines, "", "loadmaster COMMAND --help says more."])


def _fail(message: str) -> int:
    print(f"loadmaster: {message}", file=sys.stderr)
    return FAILED
