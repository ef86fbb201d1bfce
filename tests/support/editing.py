"""Asks a planner's schedule over plain HTTP, and plans a run without any planner to compare with."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from loadmaster_flight.spec import RunSpec, ScheduleSpec, revised
from loadmaster_flight.wire.schemas import METADATA
from loadmaster_flight.wire.step_plan import StepPlan
from loadmaster_server.access import AccessMode, AccessService, Role
from loadmaster_server.planning.planner import NeedMetadata, StreamPlanner
from loadmaster_server.store import AccessRepository, Database
from support.synthetic import LANES, ROWS, UNITS, lane_end, synthetic_row


def token_in(state_dir: Path, name: str, *roles: Role) -> str:
    """A token of the planner that keeps its state in a folder."""
    database = Database(f"sqlite:///{state_dir / 'planner.db'}")
    try:
        return AccessService(AccessRepository(database), AccessMode.TOKEN).create_token(name, roles, by="test")[0]
    finally:
        database.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, JSON and ETag of an answer."""

    status: int
    body: Any
    etag: str | None


@dataclass(frozen=True, slots=True)
class Editor:
    """One person at a planner."""

    url: str
    author: str = "ada"
    run: str = "run"
    token: str = ""

    def ask(self, method: str, path: str, body: Any = None, *, if_match: int | str | None = None) -> Answer:
        """One call below /api/v1/runs/RUN; an error is an answer like others."""
        headers = {"content-type": "application/json"} | self._bearer
        if if_match is not None:
            headers["if-match"] = f'"{if_match}"' if isinstance(if_match, int) else if_match
        data = None if body is None else json.dumps(body).encode()
        target = f"{self.url}/api/v1/runs/{self.run}{path}"
        request = urllib.request.Request(target, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return _answer(answer.status, answer.read(), answer.headers.get("etag"))
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, error.read(), None)

    @property
    def _bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    def schedule(self) -> Any:
        """The newest schedule."""
        return self.ask("GET", "/schedule").body

    def publish(self, weights: dict[str, Any] | None = None, *, base: int = 0, **more: Any) -> Answer:
        """Publish the newest schedule with other weights; other keywords replace its fields."""
        request = {name: more.pop(name) for name in ("at_step", "message") if name in more}
        schedule = self.schedule()["schedule"] | more
        schedule["weights"] = schedule["weights"] | (weights or {})
        body = {"author": self.author, "message": "more web", "schedule": schedule} | request
        return self.ask("POST", "/revisions", body, if_match=base)

    def audit_rows(self, **query: Any) -> list[dict[str, Any]]:
        """A page of the run's audit log, newest first."""
        target = f"{self.url}/api/v1/audit?{urllib.parse.urlencode({'run': self.run} | query)}"
        request = urllib.request.Request(target, headers=self._bearer)
        with urllib.request.urlopen(request, timeout=30) as answer:
            rows: list[dict[str, Any]] = json.loads(answer.read())
        return rows

    def audit(self) -> list[tuple[str, str, int | None]]:
        """Author, action and revision of each change of the run, oldest first."""
        return [(row["author"], row["action"], row["revision"]) for row in reversed(self.audit_rows())]


def reference(
    spec: RunSpec, last: int, revisions: Sequence[tuple[int, ScheduleSpec]] = (), *, grown: RunSpec | None = None
) -> list[StepPlan]:
    """Steps [0, last) of train on one rank over synthetic rows, planned at one go.

    Args:
        revisions: First step and schedule of revisions 1, 2, ..., in ascending steps.
        grown: The spec with the sources that the first of them adds.
    """
    planner = StreamPlanner(spec, "train", [LANES] * len(spec.sources), {"pp": 1, "dp": 1, "cp": 1, "tp": 1})
    plans: list[StepPlan] = []
    while planner.step < last:
        number = sum(step <= planner.step for step, _ in revisions)
        if number != planner.revision:
            after = revised(grown or spec, revisions[number - 1][1])
            planner.follow(after, number, [LANES] * len(after.sources))
        try:
            plans.append(planner.plan_next())
        except NeedMetadata as need:
            for demand in need.demands:
                planner.feed(_epoch_of(demand.source, demand.epoch))
    return plans


def _epoch_of(source: int, epoch: int) -> pa.RecordBatch:
    rows = []
    for lane in range(LANES):
        rows += [synthetic_row(source, epoch, lane, unit, pos) for unit in range(UNITS) for pos in range(ROWS)]
        rows.append(lane_end(source, epoch, lane))
    return pa.RecordBatch.from_pylist(rows, schema=METADATA)


def _answer(status: int, data: bytes, etag: str | None) -> Answer:
    return Answer(status, json.loads(data) if data else None, etag)
