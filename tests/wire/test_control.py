"""Control messages as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.wire import control
from loadmaster_flight.wire.control import (
    Assignment,
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Lease,
    RegisterRequest,
    Role,
    StreamView,
    TicketReply,
    from_json,
    to_json,
)
from loadmaster_flight.wire.errors import BadRequestError

MESSAGES = [
    cls
    for cls in vars(control).values()
    if isinstance(cls, type) and cls.__module__ == control.__name__ and hasattr(cls, "__dataclass_fields__")
]


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_from_json_when_sent_as_json_then_every_message_comes_back(cls: type[Any], data: st.DataObject) -> None:
    simple = st.recursive(st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=2), max_leaves=4)
    tree = st.dictionaries(st.text(max_size=5), simple, max_size=3)
    free = {"dict[str, Any]": tree, "list[dict[str, Any]]": st.lists(tree, max_size=2)}
    own = {field.name: free[str(field.type)] for field in dataclasses.fields(cls) if str(field.type) in free}
    message = data.draw(st.builds(cls, **own).filter(lambda m: "nan" not in repr(m).lower()))
    assert from_json(cls, json.loads(json.dumps(to_json(message)))) == message


def test_from_json_when_nested_then_lists_of_messages_are_built() -> None:
    body = {
        "assignments": [
            {
                "run": "r",
                "stream": "train",
                "generation": 1,
                "first_step": 0,
                "ranks": [0, 1],
                "dp_of_rank": [0, 1],
                "mesh": {"dp": 2},
                "build_ahead": 3,
                "loaders": [{"address": "grpc://127.0.0.1:1", "partitions": [[0, 0, 1]]}],
            }
        ],
        "leases": [{"run": "r", "source": 1, "partition": 0, "partitions": 2}],
    }
    reply = from_json(HeartbeatReply, body)
    assert isinstance(reply.assignments[0], Assignment)
    assert reply.assignments[0].loaders[0].partitions == [[0, 0, 1]]
    assert reply.leases == [Lease(run="r", source=1, partition=0, partitions=2)]
    assert reply.released == []


def test_from_json_when_a_key_is_unknown_then_it_is_ignored() -> None:
    body = {"address": "a", "ticket_hex": "00", "last_step": 4, "new_in_2030": True}
    assert from_json(TicketReply, body) == TicketReply(address="a", ticket_hex="00", last_step=4)


def test_from_json_when_an_enum_is_given_as_text_then_it_becomes_one() -> None:
    request = from_json(RegisterRequest, {"role": "loader", "address": "a", "incarnation": "i"})
    assert request.role is Role.LOADER


@pytest.mark.parametrize(
    ("cls", "body", "says"),
    [
        (JoinReply, {}, "JoinReply.*state"),
        (JoinRequest, {"rank": 0, "world_size": 1}, "JoinRequest.*nonce"),
        (RegisterRequest, {"role": "pilot", "address": "a", "incarnation": "i"}, "RegisterRequest.*pilot"),
        (HeartbeatRequest, [], "HeartbeatRequest must be an object, got list"),
        (HeartbeatRequest, {"incarnation": "i", "acknowledged": 3}, "HeartbeatRequest"),
        (StreamView, None, "StreamView must be an object, got NoneType"),
    ],
)
def test_from_json_when_the_body_is_wrong_then_message_and_field_are_named(
    cls: type[Any], body: object, says: str
) -> None:
    with pytest.raises(BadRequestError, match=says):
        from_json(cls, body)
