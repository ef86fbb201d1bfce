"""Which certificates a process uses, and what two sides that do not fit say."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.errors import BadRequestError, UnauthenticatedError, UnavailableError
from loadmaster_flight.wire.flight import FlightPeer, FlightService
from loadmaster_flight.wire.tls import Tls, add_tls, check_listening, tls_of, tls_of_environment
from loadmaster_server.certificates import make_certificates
from support.secured import tls_in


class Echo(FlightService):
    """Answers every action."""

    def act(self, action: Action, body: dict[str, Any]) -> dict[str, Any]:
        return body


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of loader and planner, and in `foreign` those of another authority."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, [["planner"], ["loader"]], days=1)
    make_certificates(folder / "foreign", [["planner"]], days=1)
    return folder


def test_tls_when_the_environment_and_options_say_something_then_options_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOADMASTER_TLS_CERT", "a.pem")
    monkeypatch.setenv("LOADMASTER_TLS_KEY", "a.key")
    monkeypatch.setenv("LOADMASTER_TLS_CA", "ca.pem")
    monkeypatch.setenv("LOADMASTER_TLS_MUTUAL", "1")
    parser = argparse.ArgumentParser()
    add_tls(parser, serves=True)
    found = tls_of(parser.parse_args(["--tls-cert", "b.pem", "--tls-key", "b.key"]))
    assert found == Tls(cert=Path("b.pem"), key=Path("b.key"), ca=Path("ca.pem"), is_mutual=True)
    assert tls_of_environment(found.as_environment()) == found


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"LOADMASTER_TLS_CERT": "a.pem"}, r"--tls-key \(LOADMASTER_TLS_KEY\) is missing"),
        ({"LOADMASTER_TLS_KEY": "a.key"}, r"--tls-cert \(LOADMASTER_TLS_CERT\) is missing"),
        ({"LOADMASTER_TLS_MUTUAL": "1"}, "--tls-mutual .* needs"),
        ({"LOADMASTER_TLS_MUTUAL": "perhaps"}, "must be 1 or 0"),
    ],
)
def test_tls_when_parts_do_not_go_together_then_names_what_is_missing(environment: dict[str, str], says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        tls_of_environment(environment)


def test_check_listening_when_it_leaves_the_machine_in_plain_text_then_says_what_to_do() -> None:
    check_listening("127.0.0.1", Tls())
    with pytest.raises(BadRequestError, match=r"unless there is TLS, got '0.0.0.0': add --tls-cert and --tls-key"):
        check_listening("0.0.0.0", Tls())
    with pytest.raises(BadRequestError, match="host must be a loopback address"):
        FlightService(host="0.0.0.0")


def test_files_when_they_cannot_be_used_then_named(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UnavailableError, match=r"nothing\.pem cannot be read"):
        Tls(ca=tmp_path / "nothing.pem").client_context()
    wrong = Tls(cert=folder / "planner.pem", key=folder / "loader.key")
    with pytest.raises(UnavailableError, match=r"planner.pem, .*loader.key cannot be used"):
        FlightService(tls=wrong)


Call = Callable[[Path], tuple[Tls, Tls, str]]


@pytest.mark.parametrize(
    ("sides", "error", "says"),
    [
        (lambda f: (tls_in(f, "loader"), tls_in(f / "foreign", "planner"), ""), UnauthenticatedError, "verify failed"),
        (lambda f: (tls_in(f, "loader"), tls_in(f, "planner"), "?name=other"), UnauthenticatedError, "Peer name other"),
        (
            lambda f: (tls_in(f, "loader", is_mutual=True), Tls(ca=f / "ca.pem"), ""),
            UnavailableError,
            "Socket closed",
        ),
    ],
    ids=["authority", "name", "mutual"],
)
def test_peer_when_the_two_sides_do_not_fit_then_says_so(folder: Path, sides: Call, error: Any, says: str) -> None:
    serving, calling, query = sides(folder)
    service = Echo(tls=serving)
    with FlightPeer(service.address + query, tls=calling) as peer, pytest.raises(error, match=says):
        peer.action(Action.HEALTH)
    service.stop()


def test_peer_when_a_replica_shares_a_certificate_then_its_name_is_checked(folder: Path) -> None:
    service = Echo(tls=tls_in(folder, "loader", is_mutual=True, name="loader"))
    assert service.address.endswith("?name=loader")
    with FlightPeer(service.address, tls=tls_in(folder, "planner")) as peer:
        assert peer.action(Action.HEALTH, {"a": 1}) == {"a": 1}
    service.stop()


def test_peer_when_one_side_is_plain_then_it_is_no_answer_or_no_tls(folder: Path) -> None:
    plain, sealed = Echo(), Echo(tls=tls_in(folder, "loader"))
    with (
        FlightPeer(f"grpc+tls://127.0.0.1:{plain.port}", tls=tls_in(folder, "planner")) as peer,
        pytest.raises(UnauthenticatedError, match="TLS could not be agreed"),
    ):
        peer.action(Action.HEALTH)
    with FlightPeer(f"grpc://127.0.0.1:{sealed.port}") as peer, pytest.raises(UnavailableError):
        peer.action(Action.HEALTH)
    plain.stop()
    sealed.stop()
