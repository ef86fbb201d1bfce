"""Where processes are reached, and what goes there in plain text."""

from __future__ import annotations

import socket

import pytest

from loadmaster_flight.wire.addresses import (
    address_at,
    check_flight_address,
    is_loopback,
    location_of,
    refuse_plain,
)
from loadmaster_flight.wire.errors import BadRequestError


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("planner.localhost", True),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_is_loopback_when_asked_then_only_what_no_other_machine_can_be(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("address", ["http://planner:8700", "grpc://10.0.0.5:1", "grpc+tcp://10.0.0.5:1"])
def test_refuse_plain_when_it_leaves_the_machine_then_says_how_to_call_it(address: str) -> None:
    with pytest.raises(BadRequestError, match=r"is plain text.*call it as (https|grpc\+tls)://"):
        refuse_plain(address)


@pytest.mark.parametrize("address", ["http://[::1]:1", "grpc://127.0.0.1:1", "https://planner", "grpc+tls://loader:5"])
def test_refuse_plain_when_it_stays_or_is_sealed_then_nothing(address: str) -> None:
    refuse_plain(address)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("grpc://[::1", "must look like"),
        ("grpc://", "must look like"),
        ("grpc+unix:///run/x", "must look like"),
        ("https://planner:5", "must look like grpc"),
        ("grpc+tls://loader", "must have a port"),
        ("grpc+tls://loader:99999", "must look like"),
        ("grpc+tls://loader:5/x", "only .name= may come"),
        ("grpc+tls://" + "l" * 260 + ":5", "at most 255"),
    ],
)
def test_check_flight_address_when_it_is_none_then_refused(address: str, says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        check_flight_address(address)


def test_location_of_when_it_has_a_name_then_apart_from_where_to_connect() -> None:
    assert location_of("grpc+tls://10.0.0.5:5005?name=loader") == ("grpc+tls://10.0.0.5:5005", "loader")
    assert location_of("grpc://[::1]:5") == ("grpc://[::1]:5", "")


def test_address_at_when_it_listens_everywhere_then_by_the_machines_name() -> None:
    assert address_at("grpc+tls", "0.0.0.0", 5, name="loader") == f"grpc+tls://{socket.gethostname()}:5?name=loader"
    assert address_at("https", "::1", 5) == "https://[::1]:5"
