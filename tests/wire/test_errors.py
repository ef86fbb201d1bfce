"""The error tree: what is raised here comes out over there."""

from __future__ import annotations

import pyarrow.flight as fl
import pytest

from loadmaster_flight.wire import errors
from loadmaster_flight.wire.errors import (
    BY_CODE,
    MAX_MESSAGE_CHARS,
    DeadlineError,
    InternalError,
    LoadmasterError,
    RetryableError,
    UnauthenticatedError,
    UnavailableError,
    from_flight,
    from_problem,
    to_flight,
    to_problem,
)

CLASSES = list(BY_CODE.values())


def leaves(cls: type[LoadmasterError]) -> list[type[LoadmasterError]]:
    found = [sub for sub in cls.__subclasses__() if sub.__module__ == errors.__name__]
    return [leaf for sub in found for leaf in (leaves(sub) or [sub])]


def test_tree_when_walked_then_every_class_has_a_code_of_its_own() -> None:
    assert sorted(c.__name__ for c in leaves(LoadmasterError)) == sorted(c.__name__ for c in CLASSES)
    assert all(cls.code == code for code, cls in BY_CODE.items())
    assert {cls for cls in CLASSES if cls.retry} == {cls for cls in CLASSES if issubclass(cls, RetryableError)}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.code)
def test_flight_when_an_error_crosses_it_then_class_message_and_details_stay(cls: type[LoadmasterError]) -> None:
    again = from_flight(to_flight(cls("source prose, shard 3: gone", shard=3)))
    assert (type(again), again.message, again.details) == (cls, "source prose, shard 3: gone", {"shard": 3})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.code)
def test_http_when_an_error_crosses_it_then_class_message_and_details_stay(cls: type[LoadmasterError]) -> None:
    problem = to_problem(cls("step 3 is gone", step=3))
    again = from_problem(problem)
    assert (type(again), again.message, again.details) == (cls, "step 3 is gone", {"step": 3})
    assert 400 <= problem["status"] < 600


def test_to_flight_when_the_exception_is_not_ours_then_it_is_internal_without_a_traceback() -> None:
    again = from_flight(to_flight(KeyError("secret")))
    assert isinstance(again, InternalError)
    assert "Traceback" not in again.message


def test_to_flight_when_the_message_is_long_then_it_is_cut_to_what_survives_the_wire() -> None:
    error = to_flight(InternalError("x" * 10_000, detail="y" * 10_000))
    assert len(error.extra_info) < 3 * MAX_MESSAGE_CHARS
    assert from_flight(error).message == "x" * MAX_MESSAGE_CHARS


@pytest.mark.parametrize(
    ("raised", "cls"),
    [
        (fl.FlightUnavailableError("connection refused"), UnavailableError),
        (fl.FlightUnavailableError("Ssl handshake failed"), UnauthenticatedError),
        (fl.FlightUnavailableError("Peer name foo is not in peer certificate"), UnauthenticatedError),
        (fl.FlightUnavailableError("Handshake read failed (Socket closed)"), UnavailableError),
        (fl.FlightTimedOutError("deadline exceeded"), DeadlineError),
        (fl.FlightCancelledError("cancelled"), UnavailableError),
        (OSError("socket closed"), UnavailableError),
        (RuntimeError("what"), InternalError),
    ],
)
def test_from_flight_when_it_is_not_one_of_ours_then_it_is_classified(
    raised: Exception, cls: type[LoadmasterError]
) -> None:
    assert type(from_flight(raised)) is cls


def test_from_problem_when_the_code_is_unknown_then_it_is_internal() -> None:
    assert isinstance(from_problem({"code": "NEW_IN_2030", "detail": "?"}), InternalError)
    assert "Not Found" in from_problem({"detail": "Not Found"}).message
