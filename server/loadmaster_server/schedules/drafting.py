"""Drafts over HTTP: kept, and brought onto the newest revision."""

from __future__ import annotations

from collections.abc import Mapping

from loadmaster_flight.wire.errors import BadRequestError

from ..store import DraftRecord, Store, Timeline
from .merge import Merge, Side, merge
from .schemas import DraftHead, DraftRequest, DraftView, RebaseReply
from .views import conflict_view, draft_view, headed


class DraftService:
    """Keeps drafts. Any thread may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def views(self, run: str) -> list[DraftHead]:
        """All drafts of a run by author, without their schedules."""
        newest = self._store.schedules.timeline(run).newest.number
        return [headed(draft_view(draft, newest), DraftHead) for draft in self._store.drafts.of_run(run)]

    def view(self, run: str, author: str) -> DraftView:
        """One draft."""
        newest = self._store.schedules.timeline(run).newest.number
        return draft_view(self._store.drafts.get(run, author), newest)

    def save(self, run: str, author: str, request: DraftRequest, version: int | None) -> DraftView:
        """Write a draft; with `version` only over that one (0: over none).

        Raises:
            BadRequestError: Its base is no revision.
            StaleError: Another version is there.
        """
        timeline = self._store.schedules.timeline(run)
        _check_base(timeline, request.base)
        saved = self._store.drafts.save(run, author, base=request.base, schedule=request.schedule, version=version)
        return draft_view(saved, timeline.newest.number)

    def discard(self, run: str, author: str, version: int | None) -> None:
        """Throw a draft away; with `version` only that one.

        Raises:
            StaleError: Another version is there.
        """
        self._store.schedules.timeline(run)
        self._store.drafts.discard(run, author, version=version)

    def rebase(self, run: str, author: str, choices: Mapping[str, Side]) -> RebaseReply:
        """Merge a draft with the newest revision; it is written when no conflict is left undecided."""
        timeline, draft = self._store.schedules.timeline(run), self._store.drafts.get(run, author)
        merged = merge_draft(timeline, draft, choices)
        newest = timeline.newest.number
        if not merged.conflicts and draft.base != newest:
            draft = self._store.drafts.save(
                run, author, base=newest, schedule=merged.schedule, version=draft.version
            )  # fmt: skip
        return RebaseReply(
            draft=draft_view(draft, newest),
            conflicts=[conflict_view(conflict) for conflict in merged.conflicts],
            merged=merged.schedule,
        )


def merge_draft(timeline: Timeline, draft: DraftRecord, choices: Mapping[str, Side] | None = None) -> Merge:
    """A draft on the newest revision."""
    base = timeline.revisions[draft.base].schedule
    return merge(base, draft.schedule, timeline.newest.schedule, choices)


def _check_base(timeline: Timeline, base: int) -> None:
    if not 0 <= base <= timeline.newest.number:
        raise BadRequestError(f"base must be a revision in [0, {timeline.newest.number}], got {base}")
