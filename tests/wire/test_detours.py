"""LOADMASTER_CONNECT_TO: connect elsewhere, and still ask for the certificate of whom was called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.detours import detour_of
from loadmaster_flight.wire.errors import BadRequestError, LoadmasterError
from loadmaster_flight.wire.flight import FlightPeer, FlightService
from loadmaster_flight.wire.tls import Tls
from loadmaster_server.certificates import make_certificates

TO = {"LOADMASTER_CONNECT_TO": "constructor-1:8710=127.0.0.1:8711, constructor-2:8710=[::1]:8712"}


class Echo(FlightService):
    """Answers every action."""

    def act(self, action: Action, body: dict[str, Any]) -> dict[str, Any]:
        return body


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        (("grpc+tls://constructor-1:8710", "constructor"), ("grpc+tls://127.0.0.1:8711", "constructor")),
        (("grpc+tls://constructor-2:8710", ""), ("grpc+tls://[::1]:8712", "constructor-2")),
        (("grpc+tls://constructor-1:9000", ""), ("grpc+tls://constructor-1:9000", "")),
    ],
)
def test_detour_when_one_is_given_then_there_under_the_name_that_was_called(
    called: tuple[str, str], expected: tuple[str, str]
) -> None:
    assert detour_of(*called, TO) == expected
    assert detour_of(*called, {}) == called


@pytest.mark.parametrize("text", ["constructor-1", "a:1=b", "a=b:1", "a:1=b:x", "a:1=b:1/c", "=b:1"])
def test_detour_when_it_is_none_then_refused_with_the_variable(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"LOADMASTER_CONNECT_TO must look like host:port=host:port"):
        detour_of("grpc+tls://a:1", "", {"LOADMASTER_CONNECT_TO": text})


def test_peer_when_sent_elsewhere_then_only_who_has_the_certificate_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificates(tmp_path, [["constructor-1"]], days=1)
    tls = Tls(cert=tmp_path / "constructor-1.pem", key=tmp_path / "constructor-1.key", ca=tmp_path / "ca.pem")
    service = Echo(tls=tls)
    monkeypatch.setenv(
        "LOADMASTER_CONNECT_TO", ",".join(f"{n}:8710=127.0.0.1:{service.port}" for n in ("constructor-1", "other"))
    )
    with FlightPeer("grpc+tls://constructor-1:8710", tls=Tls(ca=tls.ca)) as peer:
        assert peer.action(Action.HEALTH, {"n": 1}) == {"n": 1}
    with FlightPeer("grpc+tls://other:8710", tls=Tls(ca=tls.ca)) as peer, pytest.raises(LoadmasterError):
        peer.action(Action.HEALTH, timeout_s=5.0)
    service.stop()
