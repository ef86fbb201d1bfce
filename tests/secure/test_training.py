"""Training over TLS, and secrets that change meanwhile."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
from pathlib import Path

import pytest

import loadmaster
from loadmaster.cli import main
from loadmaster_flight.wire.errors import BadRequestError, UnauthenticatedError, UnavailableError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.tls import Tls
from loadmaster_server.access import AccessMode, Role
from loadmaster_server.certificates import make_certificates
from loadmaster_server.serving import CertificateWatch, PlannerServer
from loadmaster_server.settings import PlannerSettings
from support.commands import wait_until
from support.secured import NAMES, RUN, Secured, secured, steps, tls_in


@pytest.fixture
def as_trainer(plane: Secured, monkeypatch: pytest.MonkeyPatch) -> Secured:
    """The environment of a trainer."""
    monkeypatch.setenv("LOADMASTER_TOKEN_FILE", "")
    monkeypatch.setenv("LOADMASTER_TOKEN", plane.token("trainer", Role.PROCESS))
    return plane


def test_ranks_when_all_speak_tls_then_they_train(plane: Secured) -> None:
    assert steps(plane, 3) == [[0, 1, 2]] * 2


def test_ranks_when_callers_need_certificates_then_who_has_one_trains_and_who_has_none_does_not(
    tmp_path: Path, tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with secured(tmp_path, tokenizer_file, is_mutual=True) as plane:
        assert steps(plane, 2) == [[0, 1]] * 2
        bare = PlannerClient(plane.url, tls=plane.tls(cert=None, key=None), token=plane.token("x", Role.VIEWER))
        with pytest.raises((UnauthenticatedError, UnavailableError)):
            bare.request("GET", "/runs")
        bare.close()


def test_connect_when_the_authority_is_another_then_refused_at_once(as_trainer: Secured, tmp_path: Path) -> None:
    (foreign, _) = make_certificates(tmp_path, [["planner"]], days=1)
    with (
        loadmaster.connect(as_trainer.url, run=RUN, framework="numpy", rank=0, world_size=2, tls_ca=foreign) as stream,
        pytest.raises(UnauthenticatedError, match=r"TLS could not be agreed.*LOADMASTER_TLS_CA"),
    ):
        next(stream)


def test_connect_when_plain_text_would_leave_the_machine_then_refused() -> None:
    with (
        loadmaster.connect("http://planner.example.org:8700", framework="numpy", rank=0, world_size=1) as stream,
        pytest.raises(BadRequestError, match="call it as https://"),
    ):
        next(stream)


def test_commands_when_the_environment_says_whom_to_trust_then_they_work(
    as_trainer: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOADMASTER_TOKEN", as_trainer.token("watcher", Role.VIEWER))
    assert main(["status", as_trainer.url]) == 2
    assert "TLS could not be agreed" in capsys.readouterr().err
    monkeypatch.setenv("LOADMASTER_TLS_CA", str(as_trainer.certificates / "ca.pem"))
    assert main(["status", as_trainer.url]) == 0
    assert "grpc+tls://127.0.0.1:" in capsys.readouterr().out


def test_certificate_when_it_is_renewed_then_new_connections_see_it_without_a_restart(plane: Secured) -> None:
    before = _serial(plane)
    make_certificates(plane.certificates, [[name] for name in NAMES], days=2)
    wait_until(lambda: _serial(plane) != before, what="the new certificate", timeout_s=20)
    with contextlib.closing(plane.client(plane.token("x", Role.VIEWER))) as client:
        assert client.request("GET", "/runs")


def _serial(plane: Secured) -> bytes:
    host, port = plane.url.removeprefix("https://").split(":")
    return ssl.get_server_certificate((host, int(port))).encode()


def test_token_when_it_is_replaced_in_its_file_then_processes_go_on_with_the_new_one(as_trainer: Secured) -> None:
    plane, access = as_trainer, as_trainer.server.planner.access
    old = next(token for token in access.tokens() if token.grant.name == "processes")
    (plane.folder / "token").write_text(plane.token("successors", Role.PROCESS))
    access.revoke_token(old.id, by="test")
    wait_until(lambda: bool(_last_used(plane, "successors")), what="the new token to be used", timeout_s=20)
    heard_of = {link.actor_id for link in (plane.loader.link, plane.constructor.link)}
    wait_until(lambda: _fresh(plane) == heard_of, what="both processes to be heard of", timeout_s=20)
    assert steps(plane, 2) == [[0, 1]] * 2


def _last_used(plane: Secured, name: str) -> float | None:
    return next(token.last_used_at for token in plane.server.planner.access.tokens() if token.grant.name == name)


def _fresh(plane: Secured) -> set[str]:
    return {view.actor_id for view in plane.server.planner.actors.views() if view.heartbeat_age_s < 0.5}


def test_planner_when_it_listens_at_all_networks_then_it_is_reached_by_the_machines_name(
    plane: Secured, tmp_path: Path
) -> None:
    own = plane.tls("planner")
    settings = PlannerSettings(state_dir=tmp_path, host="0.0.0.0", access=AccessMode.TOKEN, tls=own)
    with PlannerServer(settings) as server:
        assert server.url.startswith(f"https://{socket.gethostname()}:")
        here = server.url.replace(socket.gethostname(), "localhost")
        with contextlib.closing(PlannerClient(here, token="", tls=plane.tls())) as client:
            assert json.loads(client.request("GET", "/health"))["access"] == "token"


def test_certificate_when_its_new_files_do_not_fit_then_the_old_one_goes_on(tmp_path: Path) -> None:
    make_certificates(tmp_path, [["planner"], ["loader"]], days=1)
    watch = CertificateWatch(tls := tls_in(tmp_path, "planner"), look_s=0.01)
    before = _shown(watch.context, tls)
    shutil.copy(tmp_path / "loader.pem", tmp_path / "planner.pem")
    wait_until(lambda: "cannot be used" in watch.trouble, what="the new file to be looked at", timeout_s=20)
    assert _shown(watch.context, tls_in(tmp_path, "loader")) == before
    make_certificates(tmp_path, [["planner"]], days=1)
    wait_until(lambda: _shown(watch.context, tls) != before, what="the next pair", timeout_s=20)
    watch.close()


def _shown(server: ssl.SSLContext, tls: Tls) -> bytes | None:
    """The certificate that a client sees."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = tls.client_context().wrap_bio(to_client, to_server, server_hostname="planner")
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (one, other, one, other):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return one.getpeercert(binary_form=True)
