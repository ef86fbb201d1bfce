"""Anything at all, sent to a real loader and a real constructor: typed errors, and memory stays as it is."""

from __future__ import annotations

import json
import string
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.errors import BY_CODE, InternalError, from_flight
from loadmaster_flight.wire.tickets import MaterializeTicket, MeasureTicket, RankTicket, ShowTicket, Ticket, sign
from support.secured import RUN, Secured, steps

from .conftest import Tally, has_grown, rss_bytes

TALLY = Tally()
CALL_S = 5.0
FAR_S = 1e12
SLACK_BYTES = 48 << 20


def _mostly(right: Any, other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What gets past the first check in three of four cases."""
    return st.one_of(st.just(right), st.just(right), st.just(right), other)


numbers = st.one_of(st.integers(-2, 4), st.integers(-(1 << 63), (1 << 63) - 1))
small = st.one_of(st.integers(0, 3), st.integers(0, 3), numbers)
words = st.text(max_size=20)
lists = st.lists(numbers, max_size=4)
expiry = _mostly(FAR_S, st.floats())
cursors = st.lists(st.one_of(st.lists(small, min_size=4, max_size=4), lists), min_size=1, max_size=3)
places = st.lists(st.one_of(st.lists(small, min_size=3, max_size=3), lists), max_size=3)
partitions = _mostly([[0, 0, 1]], st.lists(st.one_of(st.lists(small, min_size=3, max_size=3), lists), max_size=3))
stream = {"run": _mostly(RUN, words), "stream": _mostly("train", words), "generation": _mostly(0, numbers)}
steps_of = {"first_step": small, "last_step": small}
tickets: st.SearchStrategy[Ticket] = st.one_of(
    st.builds(RankTicket, rank=small, expires_at=expiry, **stream, **steps_of),
    st.builds(
        MeasureTicket, run=stream["run"], source=_mostly(0, numbers), epoch=small, cursors=cursors,
        rows_per_lane=small, expires_at=expiry,
    ),
    st.builds(
        ShowTicket, run=stream["run"], source=_mostly(0, numbers), epoch=small, places=places, by_row=st.booleans(),
        has_text=st.booleans(), max_images=small, expires_at=expiry,
    ),
    st.builds(
        MaterializeTicket, digests=st.lists(words, max_size=2), dp_ranks=_mostly([0], lists), partitions=partitions,
        encoder_ranks=_mostly([], lists), expires_at=expiry, **stream, **steps_of,
    ),
)  # fmt: skip
scalars = st.one_of(st.none(), st.booleans(), numbers, st.floats(), st.text(max_size=12))


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(inner, st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4))


values = _nested(_nested(scalars))
bodies = st.one_of(
    st.binary(max_size=64),
    values.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"step": values, "ticket_hex": values}, optional={"waits": values, "host": values}).map(
        lambda body: json.dumps(body).encode()
    ),
)
kinds = st.one_of(st.sampled_from([action.value for action in Action]), st.text(string.printable, max_size=12))
descriptors = st.one_of(
    st.lists(st.text(max_size=12), max_size=3).map(lambda path: fl.FlightDescriptor.for_path(*path)),
    st.binary(max_size=64).map(fl.FlightDescriptor.for_command),
)


@pytest.fixture(params=["loader", "constructor"])
def client(plane: Secured, request: pytest.FixtureRequest) -> Iterator[fl.FlightClient]:
    """A foreign client: whatever it sends goes out."""
    location = getattr(plane, request.param).service.address.partition("?")[0]
    with fl.FlightClient(location, **plane.tls().flight_client()) as client:
        yield client


def _call(call: Callable[[fl.FlightCallOptions], Any]) -> None:
    """Call; what comes back is an answer, or an error of ours."""
    try:
        call(fl.FlightCallOptions(timeout=CALL_S))
        TALLY.codes["answered"] += 1
    except (pa.ArrowException, OSError) as caught:
        TALLY.codes[_checked(caught)] += 1


def _checked(error: Exception) -> str:
    """Its code."""
    assert "Traceback" not in str(error), error
    told = from_flight(error)
    assert not isinstance(told, InternalError), error
    assert getattr(error, "extra_info", b""), f"an error without a code: {error!r}"
    assert type(told) in BY_CODE.values()
    return told.code


def _read(client: fl.FlightClient, ticket: bytes) -> Callable[[fl.FlightCallOptions], None]:
    def call(options: fl.FlightCallOptions) -> None:
        reader = client.do_get(fl.Ticket(ticket), options)
        try:
            reader.read_chunk()
        except StopIteration:
            pass
        finally:
            reader.cancel()

    return call


def _run(plane: Secured, strategy: st.SearchStrategy[Any], send: Callable[[Any], None], num_examples: int) -> None:
    """Send examples; the first tenth may make the process larger, the others may not."""
    sizes: list[int] = []
    TALLY.codes.clear()
    TALLY.before_bytes = rss_bytes()

    @settings(settings.get_profile("fuzz"), max_examples=num_examples)
    @given(strategy)
    def examples(example: Any) -> None:
        send(example)
        sizes.append(rss_bytes())

    examples()
    TALLY.tell()
    assert not has_grown(sizes[len(sizes) // 10], SLACK_BYTES)
    assert plane.loader.link.is_registered
    assert plane.constructor.link.is_registered


def test_tickets_when_they_are_any_bytes_then_errors_have_codes(
    plane: Secured, client: fl.FlightClient, num_examples: int
) -> None:
    key = plane.server.planner.store.ticket_key
    cut = st.tuples(tickets, st.integers(0, 200)).map(lambda pair: sign(pair[0], key)[: pair[1]])
    _run(plane, st.one_of(st.binary(max_size=80), cut), lambda raw: _call(_read(client, raw)), num_examples)


def test_tickets_when_they_are_signed_and_say_anything_then_errors_have_codes(
    plane: Secured, client: fl.FlightClient, num_examples: int
) -> None:
    key = plane.server.planner.store.ticket_key
    _run(plane, tickets, lambda ticket: _call(_read(client, sign(ticket, key))), num_examples)


FOUND = [ShowTicket(run=RUN, source=0, epoch=0, places=[[0, 4800, 3]], by_row=False, has_text=True, expires_at=FAR_S)]
"""What once came back as INTERNAL."""


@pytest.mark.parametrize("ticket", FOUND, ids=lambda ticket: type(ticket).__name__)
def test_ticket_when_it_once_was_a_fault_of_ours_then_it_is_answered(plane: Secured, ticket: Ticket) -> None:
    with fl.FlightClient(plane.loader.service.address.partition("?")[0], **plane.tls().flight_client()) as client:
        _call(_read(client, sign(ticket, plane.server.planner.store.ticket_key)))


def test_actions_when_they_are_anything_then_errors_have_codes(
    plane: Secured, client: fl.FlightClient, num_examples: int
) -> None:
    def send(action: tuple[str, bytes]) -> None:
        _call(lambda options: list(client.do_action(fl.Action(*action), options)))

    _run(plane, st.tuples(kinds, bodies), send, num_examples)


def test_acknowledgements_when_they_are_signed_and_say_anything_then_errors_have_codes(
    plane: Secured, client: fl.FlightClient, num_examples: int
) -> None:
    key = plane.server.planner.store.ticket_key

    def send(word: tuple[Ticket, Any, Any, Any]) -> None:
        ticket, at, waits, host = word
        body = {"ticket_hex": sign(ticket, key).hex(), "step": at, "waits": waits, "host": host}
        _call(lambda options: list(client.do_action(fl.Action("ack", json.dumps(body).encode()), options)))

    told = st.tuples(tickets, st.one_of(small, values), st.one_of(st.just([]), values), st.one_of(words, values))
    _run(plane, told, send, num_examples)


def test_descriptors_and_payloads_when_they_are_anything_then_errors_have_codes(
    plane: Secured, client: fl.FlightClient, num_examples: int
) -> None:
    schema = pa.schema([("a", pa.binary())])

    def put(descriptor: fl.FlightDescriptor, payload: bytes, options: fl.FlightCallOptions) -> None:
        writer, _ = client.do_put(descriptor, schema, options)
        with writer:
            writer.write_batch(pa.record_batch([[payload]], schema=schema))

    def exchange(descriptor: fl.FlightDescriptor, payload: bytes, options: fl.FlightCallOptions) -> None:
        writer, reader = client.do_exchange(descriptor, options)
        with writer:
            writer.write_metadata(payload)
            writer.done_writing()
            reader.read_chunk()

    def send(example: tuple[fl.FlightDescriptor, bytes]) -> None:
        descriptor, payload = example
        _call(lambda options: client.get_flight_info(descriptor, options))
        _call(lambda options: client.get_schema(descriptor, options))
        _call(lambda options: list(client.list_flights(payload, options)))
        _call(lambda options: put(descriptor, payload, options))
        _call(lambda options: exchange(descriptor, payload, options))

    _run(plane, st.tuples(descriptors, st.binary(max_size=4096)), send, max(num_examples // 5, 8))


def test_plane_when_it_was_fuzzed_then_it_serves_still(plane: Secured) -> None:
    start_s = time.monotonic()
    assert steps(plane, 2) == [[0, 1]] * 2
    assert time.monotonic() - start_s < 60
