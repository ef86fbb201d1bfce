"""The blocks of a how-to page, and what running them means.

A block with a title is a file. Python runs in one namespace a page, in order. Of bash, `loadmaster` runs in this
process and everything else in a shell; what exits with a failure is an error. Other languages of `SHOWN` are to be read
only. A block after `<!-- not run: REASON -->` is left alone.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadmaster.cli import main

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PLANNER = "http://127.0.0.1:8700"
SHOWN = ("json", "text", "yaml")
BLOCK = re.compile(r'(?:^<!-- not run: (.+?) -->\n)?^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block. `reason` says why it is not run; `title` names a file."""

    page: str
    line: int
    language: str
    title: str
    text: str
    reason: str


def blocks_of(path: Path) -> Iterator[Block]:
    """All fenced blocks of a page, in order."""
    text = path.read_text("utf-8")
    for found in BLOCK.finditer(text):
        reason, language, title, body = found.groups(default="")
        line = text.count("\n", 0, found.start(2)) + 1
        yield Block(page=path.name, line=line, language=language, title=title, text=body, reason=reason)


def run_page(path: Path, *, planner: str = PLANNER) -> None:
    """Run a page in the working directory; the page's planner is at `planner`."""
    names: dict[str, Any] = {"__name__": path.stem}
    for block in blocks_of(path):
        if not block.reason:
            _run(block, names, planner)


def _run(block: Block, names: dict[str, Any], planner: str) -> None:
    text = block.text.replace(PLANNER, planner)
    if block.title:
        Path(block.title).write_text(text)
    elif block.language == "python":
        padding = "\n" * block.line  # so that a traceback names the line of the page
        exec(compile(padding + text, block.page, "exec"), names)
    elif block.language == "bash":
        for command in commands_of(text):
            _run_command(command, block)
    elif block.language not in SHOWN:
        raise AssertionError(f"{block.page}:{block.line}: nothing is known of {block.language} blocks")


def commands_of(text: str) -> list[str]:
    """The commands of a block: a line each, but for those that a quote or a backslash carries on."""
    commands, rest = [], ""
    for line in text.splitlines():
        rest += line + "\n"
        if rest.count("'") % 2 == 0 and not line.endswith("\\"):
            commands.append(rest)
            rest = ""
    assert not rest.strip(), f"an open quote: {rest}"
    return commands


def _run_command(command: str, block: Block) -> None:
    words = shlex.split(command, comments=True)
    if words and words[0] == "loadmaster":
        code = main(words[1:])
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # python is the one with Loadmaster
        environment = os.environ | {"PATH": path}
        shell = ["bash", "-euc", command]
        code = subprocess.run(shell, stdout=subprocess.DEVNULL, env=environment, timeout=60).returncode
    assert code == 0, f"{block.page}:{block.line}: exit code {code} of: {command}"
