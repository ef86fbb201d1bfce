"""What `connect` takes and refuses, before anything is called."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

import loadmaster
from loadmaster import connecting
from loadmaster.feed import FeedItem
from loadmaster_flight.wire.control import JoinReply
from loadmaster_flight.wire.errors import BadRequestError

URL = "http://127.0.0.1:1"
STATE = {"run": "demo", "stream": "train", "generation": 3, "step": 17}


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rank": 2, "world_size": 2}, r"rank must be in \[0, 2\), got 2"),
        ({"world_size": 0}, "world_size must be at least 1, got 0"),
        ({"prefetch": 0}, "prefetch must be at least 1, got 0"),
        ({"timeout_s": 0}, "timeout_s must be positive, got 0"),
        ({"framework": "jax"}, "framework must be one of auto, torch, numpy, got 'jax'"),
        ({"resume": {"run": "demo"}}, "missing stream, generation, step"),
        ({"resume": STATE, "stream": "eval"}, "state must be of stream 'eval', got 'train'"),
        ({"resume": STATE, "run": "other"}, "state must be of run 'other', got 'demo'"),
        ({"resume": STATE | {"step": "x"}}, "step of a state must be a whole number, got 'x'"),
        ({"resume": STATE | {"generation": None}}, "generation of a state must be a whole number, got None"),
    ],
)
def test_connect_when_an_argument_is_wrong_then_it_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        loadmaster.connect(URL, **options)


@pytest.mark.parametrize("target", ["run.json", "ftp://127.0.0.1:1", "127.0.0.1:8700"])
def test_connect_when_the_target_is_of_no_known_kind_then_it_is_refused(target: str) -> None:
    with pytest.raises(BadRequestError, match="target must be"):
        loadmaster.connect(target)


@pytest.mark.parametrize("target", ["http://", "http://127.0.0.1:port", "http://127.0.0.1:123456", "http://[::1"])
def test_connect_when_the_address_makes_no_sense_then_it_is_refused(target: str) -> None:
    with loadmaster.connect(target) as stream, pytest.raises(BadRequestError, match="must look like http://host:port"):
        next(stream)


def test_connect_when_resumed_then_the_state_is_kept_before_anything_was_read() -> None:
    with loadmaster.connect(URL, resume=STATE) as stream:
        assert stream.state_dict() == STATE


def test_connect_when_the_launcher_says_who_we_are_then_it_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(BadRequestError, match=r"rank must be in \[0, 3\), got 3"):
        loadmaster.connect(URL)
    monkeypatch.setenv("RANK", "three")
    with pytest.raises(BadRequestError, match="environment variable RANK must be an integer, got 'three'"):
        loadmaster.connect(URL)


class EmbeddedFeed:
    """Two empty steps, and what it was asked for."""

    made: list[EmbeddedFeed] = []  # noqa: RUF012 (what the entry point made)

    def __init__(self, path: str, **arguments: Any) -> None:
        self.path, self.arguments = path, arguments
        self.run = "demo"
        self.info = JoinReply(state="open", generation=1, source_names=["prose"])
        self.acknowledged: list[int] = []
        self.is_closed = False
        self.made.append(self)

    def next_step(self) -> FeedItem | None:
        return None

    def acknowledge(self, step: int, *, wait_s: float = 0.0) -> None:
        self.acknowledged.append(step)

    def close(self, *, in_peace: bool = True) -> None:
        self.is_closed = True


def test_connect_when_the_target_is_a_spec_then_the_embedded_feed_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("connect", f"{__name__}:EmbeddedFeed", connecting.EMBEDDED_GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: EmbeddedFeed)
    monkeypatch.setattr(connecting, "entry_points", lambda **_: [entry])
    with loadmaster.connect("run.yaml", rank=1, world_size=2, resume=STATE, mesh={"dp": 2}) as stream:
        assert list(stream) == []
    feed = EmbeddedFeed.made[-1]
    assert (feed.path, feed.is_closed) == ("run.yaml", True)
    assert feed.arguments["rank"] == 1
    assert (feed.arguments["step"], feed.arguments["parent"]) == (17, 3)
    assert feed.arguments["mesh"] == {"dp": 2}


def test_connect_when_the_server_extra_is_missing_then_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "entry_points", lambda **_: [])
    with loadmaster.connect("run.yaml") as stream, pytest.raises(ImportError, match=r"loadmaster\[server\]"):
        next(stream)


def test_package_when_looked_at_then_its_public_names_are_all_there() -> None:
    assert loadmaster.__all__ == sorted(loadmaster.__all__)
    assert all(hasattr(loadmaster, name) for name in loadmaster.__all__)
