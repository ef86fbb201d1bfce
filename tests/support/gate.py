"""A planner's app, asked by people, processes and browsers."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from starlette.testclient import TestClient

from loadmaster_flight.wire.http import API
from loadmaster_server.access import Role
from loadmaster_server.app import Planner, create_app

HOST = "127.0.0.1:8321"
ORIGIN = f"http://{HOST}"


@dataclass(slots=True)
class Gate:
    """A planner, and clients of it that share nothing."""

    planner: Planner
    stack: ExitStack
    app: Any = field(init=False)

    def __post_init__(self) -> None:
        self.app = create_app(self.planner)

    def client(self, host: str = HOST, **headers: str) -> TestClient:
        """Somebody who has not said who they are."""
        client = TestClient(self.app, base_url=f"http://{host}{API}", raise_server_exceptions=False)
        client.headers.update(headers)
        self.stack.callback(client.close)
        return client

    def token(self, name: str, *roles: Role, **more: Any) -> str:
        """A token that was handed out."""
        return self.planner.access.create_token(name, roles, by="test", **more)[0]

    def bearer(self, name: str, *roles: Role, **more: Any) -> TestClient:
        """Somebody with a token."""
        return self.client(authorization=f"Bearer {self.token(name, *roles, **more)}")

    def browser(self, name: str, *roles: Role) -> TestClient:
        """Somebody who has signed in; sends what our own pages send."""
        client = self.client(origin=ORIGIN)
        code = self.planner.access.create_code(name, roles, by="test")
        answer = client.post("/session", json={"code": code})
        assert answer.status_code == 201, answer.text
        client.headers["x-loadmaster-csrf"] = answer.json()["csrf"]
        return client

    def audit(self) -> list[tuple[str, str]]:
        """Author and action of each row of the audit log, oldest first."""
        return [(row.author, row.action) for row in reversed(self.planner.store.audit.read())]
