"""What real processes write where JSON is asked for."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.synthetic import wait_for

from .conftest import Plane

pytestmark = pytest.mark.processes
NAMES = {"planner": "planner", "loader-0": "loader", "constructor-0": "constructor"}


@pytest.mark.parametrize("name", NAMES)
def test_log_when_json_then_each_line_is_an_object_that_says_who_and_when(plane: Plane, name: str) -> None:
    lines = plane.log(name)
    assert lines
    for line in lines:
        assert {"time", "level", "logger", "message", "role"} <= line.keys()
        assert line["role"] == NAMES[name]
        at = dt.datetime.fromisoformat(line["time"])
        assert abs(at.timestamp() - time.time()) < 600
    assert any(line["level"] == "info" for line in lines)


def test_log_when_a_rank_opens_its_stream_then_the_line_has_run_step_and_rank(plane: Plane) -> None:
    def opened() -> list[dict[str, Any]]:
        return [line for line in plane.log("constructor-0") if "reads from step" in line["message"]]

    first = wait_for(opened, what="the rank to be told of")[0]
    assert {name: first[name] for name in ("run", "stream", "generation", "rank", "step")} == {
        "run": "watched",
        "stream": "train",
        "generation": 0,
        "rank": 0,
        "step": 0,
    }


def test_log_when_a_process_breaks_then_its_tracebacks_are_json_too(tmp_path: Path) -> None:
    code = """
import logging, threading, warnings
from loadmaster_flight.telemetry import LogFormat, configure_logging
configure_logging("loader", format=LogFormat.JSON)
logging.getLogger("uvicorn.error").error("a server's line")
warnings.warn("a warning")
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
raise RuntimeError("the end")
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert ended.returncode == 1
    assert [line["level"] for line in lines] == ["error", "warning", "error", "critical"]
    assert lines[0]["logger"] == "uvicorn.error"
    assert "UserWarning: a warning" in lines[1]["message"]
    assert "thread worker ends: division by zero" in lines[2]["message"]
    assert "ZeroDivisionError" in lines[2]["traceback"]
    assert lines[3]["traceback"].endswith("RuntimeError: the end")
