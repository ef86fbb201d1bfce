"""The command line of logs and metrics, the same for every process."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..wire.errors import BadRequestError
from .logs import LEVELS, LogFormat, configure_logging

T = TypeVar("T")
PORT, HOST = "LOADMASTER_METRICS_PORT", "LOADMASTER_METRICS_HOST"
FORMAT, LEVEL = "LOADMASTER_LOG_FORMAT", "LOADMASTER_LOG_LEVEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """How a process is watched.

    Attributes:
        metrics_port: Where it answers scrapes; None: nowhere.
        metrics_host: Address to answer at.
        log_format: What a line of its log looks like.
        log_level: Name of the least serious level that is written.
    """

    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    log_format: LogFormat = LogFormat.TEXT
    log_level: str = "info"

    @staticmethod
    def of(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> TelemetryOptions:
        """What was given on the command line, else by the environment, else the defaults.

        Raises:
            BadRequestError: A variable says what it cannot; names it.
        """
        environ = os.environ if environ is None else environ

        def chosen(name: str, variable: str, parse: Callable[[str], T], default: T) -> T:
            given: T | None = getattr(args, name, None)
            return _chosen(given, environ.get(variable, ""), variable, parse, default)

        return TelemetryOptions(
            metrics_port=chosen("metrics_port", PORT, _port, 0) or None,
            metrics_host=chosen("metrics_host", HOST, str, "127.0.0.1"),
            log_format=chosen("log_format", FORMAT, LogFormat, LogFormat.TEXT),
            log_level=chosen("log_level", LEVEL, _level, "info"),
        )

    def configure_logging(self, role: str) -> None:
        """Set the log of this process up."""
        configure_logging(role, format=self.log_format, level=self.log_level)


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """--log-format and --log-level."""
    parser.add_argument(
        "--log-format",
        type=LogFormat,
        choices=list(LogFormat),
        help=f"lines of the log: text, or one JSON object each (default: {FORMAT}, else text)",
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, help=f"least serious lines that are written (default: {LEVEL}, else info)"
    )


def add_metrics_options(parser: argparse.ArgumentParser) -> None:
    """--metrics-port and --metrics-host."""
    parser.add_argument(
        "--metrics-port", type=_port, help=f"answer GET /metrics at this port (default: {PORT}, else 0: do not)"
    )
    parser.add_argument("--metrics-host", help=f"address to answer at (default: {HOST}, else 127.0.0.1)")


def _chosen(given: T | None, text: str, variable: str, parse: Callable[[str], T], default: T) -> T:
    if given is not None:
        return given
    if not text.strip():
        return default
    try:
        return parse(text.strip())
    except ValueError as error:
        raise BadRequestError(f"environment variable {variable}: {error}") from error


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port < 1 << 16:
        raise ValueError(f"a port must be in [0, 65536), got {port}")
    return port


def _level(text: str) -> str:
    if text.lower() not in LEVELS:
        raise ValueError(f"a level must be one of {', '.join(LEVELS)}, got {text!r}")
    return text.lower()
