"""HTTP of schedules."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.http import API

from ..access import Principal, Role, author_of, needs
from .schemas import (
    ActRequest,
    AuditView,
    Author,
    DraftHead,
    DraftRequest,
    DraftView,
    PreviewReply,
    PreviewRequest,
    PublishReply,
    PublishRequest,
    RebaseReply,
    RebaseRequest,
    RetimeRequest,
    RevisionHead,
    RevisionView,
    ScheduledHead,
    ScheduledView,
    ScheduleView,
)
from .service import ScheduleService

READS = [needs(Role.VIEWER)]
AsEditor = Annotated[Principal, needs(Role.EDITOR)]
AsPublisher = Annotated[Principal, needs(Role.PUBLISHER)]
IfMatch = Annotated[str | None, Header()]
_TAG = re.compile(r'"(\d{1,15})"')


def schedule_routes(schedules: ScheduleService) -> APIRouter:
    """The routes of schedules, drafts, scheduled publishes and the audit log."""
    router = APIRouter(prefix=API, tags=["schedules"])
    _add_schedule(router, schedules)
    _add_revisions(router, schedules)
    _add_scheduled(router, schedules)
    _add_drafts(router, schedules)
    _add_audit(router, schedules)
    return router


def _add_schedule(router: APIRouter, schedules: ScheduleService) -> None:
    @router.get("/runs/{run}/schedule", dependencies=READS)
    def read_schedule(run: str, response: Response) -> ScheduleView:
        """The newest schedule. Its ETag is what a publish must match."""
        view = schedules.view(run)
        response.headers["etag"] = _tag(view.revision)
        return view

    @router.post("/runs/{run}/schedule/hold")
    def hold(who: AsPublisher, run: str, request: ActRequest, if_match: IfMatch = None) -> PublishReply:
        """Keep the mixture what it is at the first step that can still be changed."""
        base = None if if_match is None else _base(if_match)
        return schedules.hold(run, author_of(who, request.author), request, base)

    @router.post("/runs/{run}/preview", dependencies=[needs(Role.EDITOR)])
    def preview(run: str, request: PreviewRequest) -> PreviewReply:
        """What a schedule would do to each source, beside what happens without it."""
        return schedules.preview(run, request)


def _add_revisions(router: APIRouter, schedules: ScheduleService) -> None:
    @router.get("/runs/{run}/revisions", dependencies=READS)
    def list_revisions(
        run: str, before: int | None = None, limit: Annotated[int, Query(ge=1)] = 50
    ) -> list[RevisionHead]:
        """Revisions without their schedules, newest first; `before`: the last number of the page before."""
        return schedules.revisions(run, before=before, limit=limit)

    @router.post("/runs/{run}/revisions", status_code=201)
    def publish(who: AsPublisher, run: str, request: PublishRequest, if_match: IfMatch = None) -> PublishReply:
        """Publish a schedule. If-Match must hold the revision that it was made from."""
        return schedules.publish(run, author_of(who, request.author), request, _base(if_match))

    @router.get("/runs/{run}/revisions/{revision}", dependencies=READS)
    def read_revision(run: str, revision: int) -> RevisionView:
        """One revision."""
        return schedules.revision(run, revision)

    @router.post("/runs/{run}/revisions/{revision}/restore", status_code=201)
    def restore(
        who: AsPublisher, run: str, revision: int, request: ActRequest, if_match: IfMatch = None
    ) -> PublishReply:
        """A new revision with the schedule of an old one. If-Match must hold the newest."""
        return schedules.restore(run, author_of(who, request.author), revision, request, _base(if_match))


def _add_scheduled(router: APIRouter, schedules: ScheduleService) -> None:
    @router.get("/runs/{run}/scheduled", dependencies=READS)
    def list_scheduled(run: str) -> list[ScheduledHead]:
        """Publishes that wait for their step, or did, newest first, without their schedules."""
        return schedules.scheduled(run)

    @router.get("/runs/{run}/scheduled/{number}", dependencies=READS)
    def read_scheduled(run: str, number: int) -> ScheduledView:
        """One of them."""
        return schedules.one_scheduled(run, number)

    @router.post("/runs/{run}/scheduled/{number}/retime")
    def retime(who: AsPublisher, run: str, number: int, request: RetimeRequest) -> ScheduledView:
        """Let one wait for another step."""
        return schedules.retime(run, author_of(who, request.author), number, request)

    @router.delete("/runs/{run}/scheduled/{number}")
    def cancel(who: AsPublisher, run: str, number: int, author: Author | None = None) -> ScheduledView:
        """Take one back."""
        return schedules.cancel(run, author_of(who, author), number)


def _add_drafts(router: APIRouter, schedules: ScheduleService) -> None:
    @router.get("/runs/{run}/drafts", dependencies=READS)
    def list_drafts(run: str) -> list[DraftHead]:
        """All drafts by author, without their schedules."""
        return schedules.drafts.views(run)

    @router.get("/runs/{run}/drafts/{author}", dependencies=READS)
    def read_draft(run: str, author: Author, response: Response) -> DraftView:
        """An author's draft. Its ETag is its version."""
        return _with_tag(schedules.drafts.view(run, author), response)

    @router.put("/runs/{run}/drafts/{author}")
    def save_draft(
        who: AsEditor, run: str, author: Author, request: DraftRequest, response: Response, if_match: IfMatch = None
    ) -> DraftView:
        """Keep a draft; with If-Match only over that version ("0": over none)."""
        version = None if if_match is None else _base(if_match)
        return _with_tag(schedules.drafts.save(run, author_of(who, author), request, version), response)

    @router.delete("/runs/{run}/drafts/{author}", status_code=204)
    def discard_draft(who: AsEditor, run: str, author: Author, if_match: IfMatch = None) -> None:
        """Throw a draft away; with If-Match only that version, if there is one."""
        schedules.drafts.discard(run, author_of(who, author), None if if_match is None else _base(if_match))

    @router.post("/runs/{run}/drafts/{author}/rebase")
    def rebase_draft(who: AsEditor, run: str, author: Author, request: RebaseRequest) -> RebaseReply:
        """Merge a draft with the newest revision, by source."""
        return schedules.drafts.rebase(run, author_of(who, author), request.choices)


def _add_audit(router: APIRouter, schedules: ScheduleService) -> None:
    @router.get("/audit", dependencies=READS)
    def read_audit(
        run: str | None = None,
        author: str | None = None,
        action: str | None = None,
        before: int | None = None,
        limit: Annotated[int, Query(ge=1)] = 100,
    ) -> list[AuditView]:
        """Who changed what, newest first; `before`: the last number of the page before."""
        return schedules.audit(run=run, author=author, action=action, before=before, limit=limit)


def _tag(version: int) -> str:
    return f'"{version}"'


def _base(if_match: str | None) -> int:
    found = _TAG.fullmatch(if_match.strip()) if if_match else None
    if found is None:
        raise BadRequestError(f'If-Match must hold the ETag that was read, such as "3" in quotes, got {if_match!r}')
    return int(found[1])


def _with_tag(view: DraftView, response: Response) -> DraftView:
    response.headers["etag"] = _tag(view.version)
    return view
