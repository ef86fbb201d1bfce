"""Readings and how they are written down; the endpoint of processes without an HTTP server."""

from __future__ import annotations

import argparse
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from loadmaster_flight.telemetry import Distribution, Histogram, LogFormat, Readings, TelemetryOptions, serving_metrics
from loadmaster_flight.telemetry.endpoint import MetricsEndpoint
from loadmaster_flight.telemetry.exposition import Exposition
from loadmaster_flight.telemetry.metrics import MAX_SERIES, OTHERS, counter, gauge, histogram
from loadmaster_flight.telemetry.options import add_log_options, add_metrics_options
from loadmaster_flight.wire.errors import BadRequestError, UnavailableError
from loadmaster_flight.wire.tls import Tls
from loadmaster_server.certificates import make_certificates
from support.scraped import parsed, scrape

SENT = counter("lm_sent", "Sent.", "source")
WEIGHT = gauge("lm_read_seconds", "Time.", "source")
TOOK = histogram("lm_took_seconds", "Took.", "run")


def _page(readings: Readings) -> str:
    return Exposition("loader", lambda: readings).render()[0].decode()


def test_histogram_when_values_lie_on_and_between_bounds_then_each_is_counted_once() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(value)
    assert histogram.read() == Distribution(bounds=(0.1, 1.0), counts=(2, 2, 1), total=pytest.approx(8.65))
    assert histogram.read().count == 5


def test_exposition_when_parsed_then_it_is_what_was_read() -> None:
    readings = Readings()
    readings.add(SENT, 3, 'a "quoted"\nname')
    readings.add(TOOK, Distribution(bounds=(0.1, 1.0), counts=(2, 3, 1), total=9.5), "r")
    found = parsed(_page(readings))
    assert found.one("lm_sent_total", source='a "quoted"\nname') == 3
    assert [found.one("lm_took_seconds_bucket", le=le) for le in ("0.1", "1.0", "+Inf")] == [2, 5, 6]
    assert (found.one("lm_took_seconds_sum"), found.one("lm_took_seconds_count")) == (9.5, 6)
    assert found.types["lm_took_seconds"] == "histogram"


def test_readings_when_a_value_is_not_known_then_there_is_no_series() -> None:
    readings = Readings()
    readings.add(SENT, None, "a")
    assert "lm_sent" not in _page(readings)


def test_readings_when_there_are_too_many_sources_then_the_rest_is_one_series() -> None:
    readings, num = Readings(), MAX_SERIES + 10
    for i in range(num):
        readings.add(SENT, 2, f"s{i}")
        readings.add(WEIGHT, float(i), f"s{i}")
    found = parsed(_page(readings))
    assert len(found.samples["lm_sent_total"]) == MAX_SERIES + 1
    assert sum(found.all("lm_sent_total")) == 2 * num
    assert found.one("lm_sent_total", source=OTHERS) == 20
    assert found.one("lm_read_seconds", source=OTHERS) == num - 1


def test_counter_when_it_is_told_no_name_of_one_then_refused() -> None:
    with pytest.raises(AssertionError, match="labels"):
        Readings().add(SENT, 1)


def test_endpoint_when_its_port_is_taken_then_it_says_which() -> None:
    with MetricsEndpoint("loader", Readings) as first:
        port = int(first.url.rsplit(":", 1)[1].removesuffix("/metrics"))
        with pytest.raises(UnavailableError, match=f"metrics port {port} of 127.0.0.1 cannot be listened on"):
            MetricsEndpoint("loader", Readings, port=port)
        assert scrape(first.url).one("loadmaster_build_info", role="loader") == 1


def test_endpoint_when_it_would_be_plain_text_beyond_the_machine_then_refused() -> None:
    with pytest.raises(BadRequestError, match="TLS"):
        MetricsEndpoint("loader", Readings, host="0.0.0.0")


def test_endpoint_when_callers_must_have_a_certificate_then_only_they_are_answered(tmp_path: Path) -> None:
    make_certificates(tmp_path, [["loader"], ["prometheus"]], days=1)
    tls = Tls(cert=tmp_path / "loader.pem", key=tmp_path / "loader.key", ca=tmp_path / "ca.pem", is_mutual=True)
    with MetricsEndpoint("loader", Readings, tls=tls) as endpoint:
        assert endpoint.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        context.check_hostname = False
        with pytest.raises(OSError):
            urllib.request.urlopen(endpoint.url, timeout=10, context=context)
        context.load_cert_chain(tmp_path / "prometheus.pem", tmp_path / "prometheus.key")
        with urllib.request.urlopen(endpoint.url, timeout=10, context=context) as answer:
            assert b"loadmaster_build_info" in answer.read()


def test_endpoint_when_no_port_is_given_then_there_is_none() -> None:
    with serving_metrics(TelemetryOptions(), "loader", Readings, Tls()) as endpoint:
        assert endpoint is None


def _args(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_log_options(parser)
    add_metrics_options(parser)
    return parser.parse_args(argv)


def test_options_when_said_twice_then_the_command_line_wins() -> None:
    environ = {"LOADMASTER_METRICS_PORT": "9100", "LOADMASTER_LOG_FORMAT": "json", "LOADMASTER_LOG_LEVEL": "DEBUG"}
    assert TelemetryOptions.of(_args(), environ) == TelemetryOptions(
        metrics_port=9100, log_format=LogFormat.JSON, log_level="debug"
    )
    options = TelemetryOptions.of(_args("--metrics-port", "0", "--log-format", "text"), environ)
    assert (options.metrics_port, options.log_format) == (None, LogFormat.TEXT)
    assert TelemetryOptions.of(_args(), {}) == TelemetryOptions()


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("LOADMASTER_METRICS_PORT", "70000", "a port must be in"),
        ("LOADMASTER_METRICS_PORT", "http", "invalid literal"),
        ("LOADMASTER_LOG_FORMAT", "xml", "'xml' is not a valid LogFormat"),
        ("LOADMASTER_LOG_LEVEL", "loud", "a level must be one of"),
    ],
)
def test_options_when_a_variable_is_wrong_then_it_is_named(variable: str, value: str, rule: str) -> None:
    with pytest.raises(BadRequestError, match=f"environment variable {variable}: .*{rule}"):
        TelemetryOptions.of(_args(), {variable: value})
