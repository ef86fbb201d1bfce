"""Programs whose decoder crashes hard on one file, in the process itself and in those that open suspects for it."""

from __future__ import annotations

_CRASHING = """
import ctypes, sys
from dataclasses import replace
from loadmaster_flight.transforms import isolated
from loadmaster_flight.transforms.decoders import installed_decoders, use_decoders
own, fatal = installed_decoders(), bytes.fromhex({fatal!r})
def crash_on(call):
    def crashing(data, *arguments):
        if data == fatal:
            ctypes.string_at(0)  # a fault of this very thread: a signal from outside might hit another, and later
        return call(data, *arguments)
    return crashing
use_decoders(replace(own, {name}=crash_on(own.{name})))
"""


def crashing_child(name: str, fatal: bytes) -> str:
    """A process that opens one suspect."""
    crashing = _CRASHING.format(name=name, fatal=fatal.hex())
    return f"{crashing}\nfrom loadmaster_flight.transforms.media_child import main\nmain()"


def crashing_program(name: str, fatal: bytes, body: str) -> str:
    """A program that goes on with `body`.

    Args:
        name: A field of `Decoders`.
        fatal: The file on which it crashes.
        body: Python.
    """
    child = f"isolated.CHILD = (sys.executable, '-c', {crashing_child(name, fatal)!r})"
    return "\n".join((_CRASHING.format(name=name, fatal=fatal.hex()), child, body))
