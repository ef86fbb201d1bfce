"""The base of the Flight servers: whatever is called, only our errors leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from loadmaster_flight.wire.errors import BadRequestError, from_flight
from loadmaster_flight.wire.flight import FlightService


@pytest.fixture
def client() -> Iterator[fl.FlightClient]:
    """Of a service that has no streams and no actions of its own."""
    service = FlightService()
    with fl.FlightClient(service.address) as client:
        yield client
    service.stop()


def _put(client: fl.FlightClient) -> None:
    writer, _ = client.do_put(fl.FlightDescriptor.for_path("x"), pa.schema([("a", pa.int32())]))
    writer.close()


def _exchange(client: fl.FlightClient) -> None:
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_path("x"))
    writer.done_writing()
    reader.read_chunk()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: list(client.list_flights()),
        lambda client: client.get_flight_info(fl.FlightDescriptor.for_path("x")),
        _put,
        _exchange,
    ],
    ids=["list_flights", "get_flight_info", "do_put", "do_exchange"],
)
def test_call_when_it_is_not_served_then_our_error_and_no_traceback(
    client: fl.FlightClient, call: Callable[[fl.FlightClient], Any]
) -> None:
    with pytest.raises(fl.FlightError) as caught:
        call(client)
    assert "Traceback" not in str(caught.value)
    assert "tickets (DoGet) and actions alone" in from_flight(caught.value).message


def test_get_schema_when_asked_then_no_fields_and_no_traceback(client: fl.FlightClient) -> None:
    assert client.get_schema(fl.FlightDescriptor.for_path("x")).schema == pa.schema([])


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[]", b"[" * 200_000], ids=["cut", "bytes", "list", "deep"])
def test_action_when_its_body_is_no_object_then_bad_request(client: fl.FlightClient, body: bytes) -> None:
    with pytest.raises(fl.FlightError) as caught:
        list(client.do_action(fl.Action("health", body)))
    assert isinstance(from_flight(caught.value), BadRequestError)
