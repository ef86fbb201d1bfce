"""One log for a whole process: lines for people, or one JSON object a line for machines.

Whatever logs in the process (our modules, uvicorn, alembic, a warning) comes out of one handler in one form, tracebacks
included. What is known of the place (role, run, stream, step, rank) comes along: of the thread's work by `log_fields`,
of one line by `extra`.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from types import MappingProxyType, TracebackType
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error", "critical")
PLACE = ("role", "run", "stream", "generation", "step", "rank", "source", "actor")
"""Fields that a line may have besides time, level, logger and message."""
QUIET = ("alembic", "uvicorn", "numba", "fsspec", "asyncio", "s3fs", "botocore")
"""Loggers of libraries: they are written from warnings on, unless debugging is asked for."""
_FIELDS: ContextVar[Mapping[str, object]] = ContextVar("loadmaster_log_fields", default=MappingProxyType({}))
LOG = logging.getLogger(__name__)


class LogFormat(StrEnum):
    """text: for people. json: one object a line."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def log_fields(**fields: object) -> Iterator[None]:
    """Have every line that this thread (or task) writes within the block say where it belongs."""
    token = _FIELDS.set({**_FIELDS.get(), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def configure_logging(
    role: str, *, format: LogFormat = LogFormat.TEXT, level: str = "info", stream: TextIO | None = None
) -> logging.Handler:
    """Set the process's log up, in place of whatever was set up before.

    Args:
        role: Of the process; lines of JSON carry it.
        format: What a line looks like.
        level: Least serious lines that are written.
        stream: Where they go; None: standard error.

    Returns:
        The one handler.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_JsonFormatter(role) if format is LogFormat.JSON else _TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else logging.WARNING)
    logging.captureWarnings(True)
    if format is LogFormat.JSON:
        sys.excepthook, threading.excepthook = _on_uncaught, _on_uncaught_in_thread
    return handler


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The place that a line belongs to: of the thread's work, and of the line itself."""
    own = {name: getattr(record, name) for name in PLACE if hasattr(record, name)}
    return {**_FIELDS.get(), **own}


def _on_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    LOG.critical("the process ends: %s", error or kind.__name__, exc_info=(kind, error, trace))


def _on_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    name = args.thread.name if args.thread is not None else "a thread"
    error = args.exc_value or args.exc_type()
    LOG.error("thread %s ends: %s", name, error, exc_info=(args.exc_type, error, args.exc_traceback))


class _JsonFormatter(logging.Formatter):
    """One object a line; a traceback is a string in it."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "role": self._role,
            **fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str)


class _TextFormatter(logging.Formatter):
    """Time, level, message, and in brackets where it belongs."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        place = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        return f"{text} [{place}]" if place else text


def _timestamp(created: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{whole}.{int(created * 1000) % 1000:03d}Z"
