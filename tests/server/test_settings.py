from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadmaster_flight.wire.errors import BadRequestError, UnavailableError
from loadmaster_flight.wire.tls import Tls
from loadmaster_server.access import AccessMode
from loadmaster_server.serving import PlannerServer
from loadmaster_server.settings import PlannerSettings

TLS = Tls(cert=Path("planner.pem"), key=Path("planner.key"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"host": "0.0.0.0"}, "host must be a loopback address"),
        ({"host": "example.org"}, "host must be a loopback address"),
        ({"host": "0.0.0.0", "access": AccessMode.TOKEN}, "add --tls-cert and --tls-key"),
        ({"host": "0.0.0.0", "tls": TLS}, "add --access token"),
        ({"port": 65536}, "port must be in"),
        ({"heartbeat_s": 0}, "heartbeat_s must be positive"),
        ({"lease_s": 0.6}, "lease_s must be at least two heartbeats"),
        ({"planner_lease_s": 0}, "planner_lease_s must be positive"),
        ({"checkpoint_steps": 0}, "checkpoint_steps must be at least 1"),
    ],
)
def test_settings_when_a_value_is_out_of_range_then_names_the_field(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        PlannerSettings(**fields)


def test_settings_when_there_is_tls_and_everybody_has_a_token_then_any_host_is_taken() -> None:
    assert PlannerSettings(host="0.0.0.0", tls=TLS, access=AccessMode.TOKEN).host == "0.0.0.0"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_settings_when_host_is_loopback_then_taken(host: str) -> None:
    assert PlannerSettings(host=host).host == host


def test_store_url_when_no_database_is_named_then_planner_db_in_the_state_dir(tmp_path: Path) -> None:
    assert PlannerSettings(state_dir=tmp_path).store_url == f"sqlite:///{tmp_path / 'planner.db'}"
    assert PlannerSettings(database_url="sqlite:///x.db").store_url == "sqlite:///x.db"


def test_server_when_port_is_taken_then_unavailable_names_it(tmp_path: Path) -> None:
    with PlannerServer(PlannerSettings(state_dir=tmp_path)) as first:
        port = int(first.url.rsplit(":", 1)[1])
        with pytest.raises(UnavailableError, match=f"port {port} of 127.0.0.1"):
            PlannerServer(PlannerSettings(state_dir=tmp_path / "other", port=port))


def test_server_when_stopped_twice_then_fine(tmp_path: Path) -> None:
    server = PlannerServer(PlannerSettings(state_dir=tmp_path))
    server.start()
    server.stop()
    server.stop()
