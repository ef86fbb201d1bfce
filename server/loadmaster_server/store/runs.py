"""Runs, their streams, sources and revisions."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.errors import NotFoundError

from .audit import note
from .database import Database
from .models import GenerationRow, RevisionRow, RunRow, SourceRow, StreamRow
from .records import Definition, GenerationState, SourceCounts
from .revisions import Action

LIVE = (GenerationState.OPEN, GenerationState.PAUSED, GenerationState.FAILED)


class RunRepository:
    """Reads and writes runs. Definitions only ever grow, and only here, so each is read from SQL once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._definitions: dict[str, Definition] = {}
        self._lock = threading.Lock()

    def create(self, definition: Definition) -> bool:
        """Write a new run with revision 0; False when the name is taken (nothing is written then)."""
        name = definition.spec.run
        with self._database.writing() as session:
            if session.get(RunRow, name) is not None:
                return False
            session.add(RunRow(name=name, spec=_tree(definition), is_active=True, revision=0, created_at=time.time()))
            session.flush()
            _add_parts(session, definition)
        return True

    def add_source(self, run: str, name: str, spec: dict[str, Any], manifest: SourceManifest, *, by: str) -> bool:
        """Freeze another source of a run, under the next ordinal; False where its manifest has another one, because a
        source was added meanwhile: nothing is written then. `definition` has the newest afterwards.
        """
        with self._database.writing() as session:
            session.get(RunRow, run, with_for_update=True)
            num = session.scalar(select(func.count()).select_from(SourceRow).where(SourceRow.run == run))
            is_next = manifest.ordinal == num
            if is_next:
                tree, rows = manifest.model_dump(mode="json"), _known_rows(manifest)
                session.add(SourceRow(run=run, ordinal=num, name=name, manifest=tree, spec=spec, num_rows=rows))
                note(session, author=by, action=Action.SOURCE_ADDED, run=run, revision=None, message=name, ordinal=num)
        self._know(run, self._read_definition(run))
        return is_next

    def definition(self, run: str) -> Definition:
        """The frozen spec and manifests of a run.

        Raises:
            NotFoundError: There is no such run.
        """
        with self._lock:
            known = self._definitions.get(run)
        if known is None:
            known = self._know(run, self._read_definition(run))
        return known

    def _know(self, run: str, found: Definition) -> Definition:
        """Keep a definition; one that was read before a source was added gives way."""
        with self._lock:
            known = self._definitions.get(run)
            if known is None or len(known.manifests) <= len(found.manifests):
                self._definitions[run] = known = found
            return known

    def names(self) -> list[str]:
        """All runs, by name."""
        with self._database.reading() as session:
            return list(session.scalars(select(RunRow.name).order_by(RunRow.name)))

    def active_names(self) -> list[str]:
        """The runs that loaders should hold leases of, by name."""
        with self._database.reading() as session:
            return list(session.scalars(select(RunRow.name).where(RunRow.is_active).order_by(RunRow.name)))

    def activate(self, run: str) -> None:
        """Somebody works with the run: its sources are leased."""
        with self._database.writing() as session:
            session.execute(update(RunRow).where(RunRow.name == run).values(is_active=True))

    def retire_idle(self) -> None:
        """When a planner starts: runs that nobody was reading are no longer leased, until they are named again."""
        reading = select(GenerationRow.run).where(GenerationRow.state.in_(LIVE))
        with self._database.writing() as session:
            session.execute(update(RunRow).where(RunRow.name.not_in(reading)).values(is_active=False))

    def revision(self, run: str) -> int:
        """Number of the newest revision."""
        with self._database.reading() as session:
            row = session.get(RunRow, run)
        if row is None:
            raise NotFoundError(f"there is no run {run!r}")
        return row.revision

    def counts(self, run: str) -> list[SourceCounts]:
        """What is known of each source, in ordinal order."""
        statement = select(SourceRow).where(SourceRow.run == run).order_by(SourceRow.ordinal)
        with self._database.reading() as session:
            return [_counts(row) for row in session.scalars(statement)]

    def learn(self, run: str, epochs: Mapping[int, tuple[int, int, int]]) -> None:
        """Keep what an epoch held: ordinal of the source -> rows, and samples and tokens that were served."""
        with self._database.writing() as session:
            for ordinal, (rows, samples, tokens) in epochs.items():
                row = session.get_one(SourceRow, (run, ordinal))
                row.num_rows = rows
                row.epoch_rows, row.epoch_samples, row.epoch_tokens = rows, samples, tokens

    def _read_definition(self, run: str) -> Definition:
        with self._database.reading() as session:
            row = session.get(RunRow, run)
            sources = list(session.scalars(select(SourceRow).where(SourceRow.run == run).order_by(SourceRow.ordinal)))
        if row is None:
            raise NotFoundError(f"there is no run {run!r}")
        frozen = tuple(SourceManifest.model_validate(source.manifest) for source in sources)
        added = {source.name: source.spec for source in sources if source.spec is not None}
        tree = row.spec | {"sources": row.spec["sources"] | added}
        return Definition(spec=RunSpec.model_validate(tree), manifests=frozen, num_added=len(added))


def _tree(definition: Definition) -> dict[str, object]:
    return definition.spec.to_tree()


def _add_parts(session: Session, definition: Definition) -> None:
    spec = definition.spec
    streams = [StreamRow(run=spec.run, name=name, ordinal=i, generation=-1) for i, name in enumerate(spec.stream_names)]
    sources = [
        SourceRow(
            run=spec.run,
            ordinal=manifest.ordinal,
            name=manifest.name,
            manifest=manifest.model_dump(mode="json"),
            num_rows=_known_rows(manifest),
        )
        for manifest in definition.manifests
    ]
    schedule = {key: value for key, value in spec.to_tree().items() if key in ("mixture", "batch", "until", "strategy")}
    first = RevisionRow(
        run=spec.run,
        revision=0,
        base=None,
        from_step=0,
        author="",
        message="created",
        schedule=schedule,
        created_at=time.time(),
    )
    session.add_all([*streams, *sources, first])


def _counts(row: SourceRow) -> SourceCounts:
    return SourceCounts(
        num_rows=row.num_rows,
        epoch_rows=row.epoch_rows,
        epoch_samples=row.epoch_samples,
        epoch_tokens=row.epoch_tokens,
    )


def _known_rows(manifest: SourceManifest) -> int | None:
    rows = [shard.num_rows for shard in manifest.shards if shard.num_rows is not None]
    return sum(rows) if len(rows) == len(manifest.shards) else None
