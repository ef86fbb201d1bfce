"""Lines of the log, and what of their place they say."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from loadmaster_flight.telemetry import LogFormat, configure_logging, log_fields

LOG = logging.getLogger("loadmaster_flight.test")
Configure = Callable[..., io.StringIO]


@pytest.fixture
def configure() -> Iterator[Configure]:
    """Sets the log up, and puts it back as it was."""
    root = logging.getLogger()
    before, level, hooks = root.handlers[:], root.level, threading.excepthook

    def make(**options: object) -> io.StringIO:
        written = io.StringIO()
        configure_logging("loader", stream=written, **options)  # type: ignore[arg-type]
        return written

    yield make
    logging.captureWarnings(False)
    threading.excepthook = hooks
    root.handlers[:] = before
    root.setLevel(level)


def _lines(written: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def _own_excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.excepthook", lambda *_: None)


def test_json_when_fields_are_nested_then_a_line_has_all_and_the_inner_wins(configure: Configure) -> None:
    written = configure(format=LogFormat.JSON)
    with log_fields(run="a", step=1):
        with log_fields(step=2, rank=3):
            LOG.info("inner %d", 5)
        LOG.info("outer", extra={"rank": 7})
    LOG.info("none")
    inner, outer, none = _lines(written)
    assert (inner["message"], inner["run"], inner["step"], inner["rank"]) == ("inner 5", "a", 2, 3)
    assert (outer["run"], outer["step"], outer["rank"]) == ("a", 1, 7)
    assert none.keys() == {"time", "level", "logger", "message", "role"}


def test_json_when_a_message_has_newlines_then_it_is_still_one_line(configure: Configure) -> None:
    written = configure(format=LogFormat.JSON)
    LOG.warning("two\nlines \u2028 and \x1b[31mred")
    assert len(written.getvalue().splitlines()) == 1
    assert _lines(written)[0]["message"] == "two\nlines \u2028 and \x1b[31mred"


def test_json_when_another_thread_logs_then_it_has_not_our_fields(configure: Configure) -> None:
    written = configure(format=LogFormat.JSON)
    with log_fields(run="a"):
        thread = threading.Thread(target=LOG.info, args=["elsewhere"])
        thread.start()
        thread.join()
    assert "run" not in _lines(written)[0]


def test_text_when_there_are_fields_then_they_come_in_brackets(configure: Configure) -> None:
    written = configure()
    with log_fields(run="a", step=4):
        LOG.info("built")
    LOG.info("plain")
    first, second = written.getvalue().splitlines()
    assert first.endswith(" INFO built [run=a step=4]")
    assert second.endswith(" INFO plain")


def test_level_when_it_is_warning_then_less_is_left_out(configure: Configure) -> None:
    written = configure(level="warning")
    LOG.info("less")
    logging.getLogger("alembic.runtime").info("less")
    LOG.warning("more")
    assert [line.split(" ", 3)[3] for line in written.getvalue().splitlines()] == ["more"]


def test_libraries_when_the_level_is_info_then_only_their_warnings_are_written(configure: Configure) -> None:
    written = configure(format=LogFormat.JSON)
    logging.getLogger("alembic.runtime").info("chatter")
    logging.getLogger("alembic.runtime").warning("trouble")
    assert [line["message"] for line in _lines(written)] == ["trouble"]
