"""The tables. Rows of these classes never leave the store: repositories return records.

Times are seconds since 1970 (float). Everything that belongs to a run goes when the run goes.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAME, WORD = String(63), String(32)


class Base(DeclarativeBase):
    """Constraints have names, so that migrations can speak of them on every database."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def _of_run() -> ForeignKey:
    return ForeignKey("runs.name", ondelete="CASCADE")


def _of_generation() -> ForeignKeyConstraint:
    key = ["run", "stream", "generation"]
    return ForeignKeyConstraint(key, [f"generations.{name}" for name in key], ondelete="CASCADE")


class FactRow(Base):
    """What a store knows about itself: its ticket key."""

    __tablename__ = "facts"
    name: Mapped[str] = mapped_column(NAME, primary_key=True)
    value: Mapped[bytes] = mapped_column(LargeBinary)


class RunRow(Base):
    """A run and its frozen spec. Publishing and planning serialise on this row."""

    __tablename__ = "runs"
    name: Mapped[str] = mapped_column(NAME, primary_key=True)
    spec: Mapped[dict[str, Any]] = mapped_column(JSON)
    is_active: Mapped[bool] = mapped_column(Boolean)
    revision: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[float] = mapped_column(Float)


class StreamRow(Base):
    """A stream of a run, and its newest generation (-1: nobody joined yet)."""

    __tablename__ = "streams"
    run: Mapped[str] = mapped_column(NAME, _of_run(), primary_key=True)
    name: Mapped[str] = mapped_column(NAME, primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer)
    generation: Mapped[int] = mapped_column(Integer)


class SourceRow(Base):
    """A frozen source of a run. Counts are null until they are learned: `num_rows` from footers, those of an epoch
    when one was planned to its end. `spec`: of a source that was added later; null: the run's spec has it."""

    __tablename__ = "sources"
    run: Mapped[str] = mapped_column(NAME, _of_run(), primary_key=True)
    ordinal: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(NAME)
    manifest: Mapped[dict[str, Any]] = mapped_column(JSON)
    spec: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    num_rows: Mapped[int | None] = mapped_column(BigInteger)
    epoch_rows: Mapped[int | None] = mapped_column(BigInteger)
    epoch_samples: Mapped[int | None] = mapped_column(BigInteger)
    epoch_tokens: Mapped[int | None] = mapped_column(BigInteger)


class RevisionRow(Base):
    """An immutable change of a run's schedule; number 0 is the spec that the run was created with."""

    __tablename__ = "revisions"
    run: Mapped[str] = mapped_column(NAME, _of_run(), primary_key=True)
    revision: Mapped[int] = mapped_column(Integer, primary_key=True)
    base: Mapped[int | None] = mapped_column(Integer)
    from_step: Mapped[int] = mapped_column(BigInteger)
    author: Mapped[str] = mapped_column(String(200))
    message: Mapped[str] = mapped_column(Text)
    schedule: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[float] = mapped_column(Float)


class GenerationRow(Base):
    """One life of a stream on one mesh. Steps are exclusive bounds; `end_step` is null until the end is planned.

    `replay_until` is null where nothing of a parent is replayed; [skip_first, skip_last) is empty where nothing is left
    out; a stream can go on from any step of it that is at least `held_from`.
    """

    __tablename__ = "generations"
    run: Mapped[str] = mapped_column(NAME, primary_key=True)
    stream: Mapped[str] = mapped_column(NAME, primary_key=True)
    generation: Mapped[int] = mapped_column(Integer, primary_key=True)
    parent: Mapped[int] = mapped_column(Integer)
    parent_step: Mapped[int] = mapped_column(BigInteger)
    first_step: Mapped[int] = mapped_column(BigInteger)
    mesh: Mapped[dict[str, int]] = mapped_column(JSON)
    world_size: Mapped[int] = mapped_column(Integer)
    state: Mapped[str] = mapped_column(WORD)
    code: Mapped[str] = mapped_column(WORD)
    reason: Mapped[str] = mapped_column(Text)
    planned: Mapped[int] = mapped_column(BigInteger)
    bound: Mapped[int] = mapped_column(BigInteger)
    acknowledged: Mapped[int] = mapped_column(BigInteger)
    end_step: Mapped[int | None] = mapped_column(BigInteger)
    replay_until: Mapped[int | None] = mapped_column(BigInteger)
    skip_first: Mapped[int] = mapped_column(BigInteger)
    skip_last: Mapped[int] = mapped_column(BigInteger)
    held_from: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[float] = mapped_column(Float)
    __table_args__ = (
        ForeignKeyConstraint(["run", "stream"], ["streams.run", "streams.name"], ondelete="CASCADE"),
        Index(None, "state"),
    )


class MemberRow(Base):
    """A rank of a generation, and the attempt (nonce) with which it joined."""

    __tablename__ = "members"
    run: Mapped[str] = mapped_column(NAME, primary_key=True)
    stream: Mapped[str] = mapped_column(NAME, primary_key=True)
    generation: Mapped[int] = mapped_column(Integer, primary_key=True)
    rank: Mapped[int] = mapped_column(Integer, primary_key=True)
    nonce: Mapped[str] = mapped_column(String(64))
    last_seen: Mapped[float] = mapped_column(Float)
    __table_args__ = (_of_generation(), Index(None, "run", "stream", "rank", "nonce"))


class ActorRow(Base):
    """A live process. Its number is never given twice; who is silent for a lease is deleted."""

    __tablename__ = "actors"
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    role: Mapped[str] = mapped_column(WORD)
    address: Mapped[str] = mapped_column(String(255))
    incarnation: Mapped[str] = mapped_column(String(64))
    pid: Mapped[int] = mapped_column(Integer)
    capacity_bytes: Mapped[int] = mapped_column(BigInteger)
    registered_at: Mapped[float] = mapped_column(Float)
    __table_args__ = (UniqueConstraint("address"), {"sqlite_autoincrement": True})


class LeaseRow(Base):
    """Who owns what. kind "partition": slot k of `slots` = P of a source; kind "dp": dp rank `slot` of a generation.
    standby 0 is the owner; 1, 2 and so on stand by to become it, in this order."""

    __tablename__ = "leases"
    run: Mapped[str] = mapped_column(NAME, _of_run(), primary_key=True)
    kind: Mapped[str] = mapped_column(WORD, primary_key=True)
    stream: Mapped[str] = mapped_column(NAME, primary_key=True)
    generation: Mapped[int] = mapped_column(Integer, primary_key=True)
    source: Mapped[int] = mapped_column(Integer, primary_key=True)
    slot: Mapped[int] = mapped_column(Integer, primary_key=True)
    standby: Mapped[int] = mapped_column(Integer, primary_key=True)
    slots: Mapped[int] = mapped_column(Integer)
    actor: Mapped[int] = mapped_column(ForeignKey("actors.number", ondelete="CASCADE"))
    __table_args__ = (Index(None, "actor"),)


class PlannerLeaseRow(Base):
    """The one row (number 0) that says which planner acts: every writer but its holder is refused by `epoch`.

    `beat` counts renewals: who wants the lease sees by it that the holder lives, whatever the clocks say. `until` is
    for people, and 0 when it was given back. `place` is a folder that the holder has locked; empty: it has none.
    """

    __tablename__ = "planner_lease"
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(BigInteger)
    beat: Mapped[int] = mapped_column(BigInteger)
    holder: Mapped[str] = mapped_column(String(255))
    place: Mapped[str] = mapped_column(String(1024))
    until: Mapped[float] = mapped_column(Float)


class PlanRow(Base):
    """The plan log: one step of a generation. An old body moves to a segment file: then `intervals` says which pieces
    the step has, without their bins, and `segment` where the body is."""

    __tablename__ = "plans"
    run: Mapped[str] = mapped_column(NAME, primary_key=True)
    stream: Mapped[str] = mapped_column(NAME, primary_key=True)
    generation: Mapped[int] = mapped_column(Integer, primary_key=True)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    digest: Mapped[str] = mapped_column(String(64))
    revision: Mapped[int] = mapped_column(Integer)
    is_final: Mapped[bool] = mapped_column(Boolean)
    body: Mapped[bytes | None] = mapped_column(LargeBinary)
    summary: Mapped[dict[str, Any]] = mapped_column(JSON)
    intervals: Mapped[bytes | None] = mapped_column(LargeBinary)
    segment: Mapped[int | None] = mapped_column(Integer)
    __table_args__ = (_of_generation(),)


class SegmentRow(Base):
    """A file with the bodies of the steps [first_step, last_step) of a generation. `path` is below the storage URI."""

    __tablename__ = "segments"
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    run: Mapped[str] = mapped_column(NAME, _of_run())
    stream: Mapped[str] = mapped_column(NAME)
    generation: Mapped[int] = mapped_column(Integer)
    first_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    path: Mapped[str] = mapped_column(String(255))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    written_at: Mapped[float] = mapped_column(Float)
    __table_args__ = (UniqueConstraint("path"),)


class CheckpointRow(Base):
    """The planner's state before it plans `step`: cursors, credit, queue. `written_at` is null for old ones."""

    __tablename__ = "checkpoints"
    run: Mapped[str] = mapped_column(NAME, primary_key=True)
    stream: Mapped[str] = mapped_column(NAME, primary_key=True)
    generation: Mapped[int] = mapped_column(Integer, primary_key=True)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    state: Mapped[bytes] = mapped_column(LargeBinary)
    written_at: Mapped[float | None] = mapped_column(Float)
    __table_args__ = (_of_generation(),)


class VerdictRow(Base):
    """The verdict journal. kind "measured": the stream leaves the sample out for its content; "over_long": for its
    length; "masked": it is served in `step` without loss."""

    __tablename__ = "verdicts"
    number: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    run: Mapped[str] = mapped_column(NAME, _of_run())
    kind: Mapped[str] = mapped_column(WORD)
    stream: Mapped[str] = mapped_column(NAME)
    step: Mapped[int] = mapped_column(BigInteger)
    source: Mapped[int] = mapped_column(Integer)
    epoch: Mapped[int] = mapped_column(Integer)
    shard: Mapped[int] = mapped_column(Integer)
    block: Mapped[int] = mapped_column(Integer)
    row: Mapped[int] = mapped_column(Integer)
    verdict: Mapped[int] = mapped_column(Integer)
    reason: Mapped[str] = mapped_column(Text)
    __table_args__ = (
        UniqueConstraint("run", "source", "shard", "block", "row", "kind", "stream", "step"),
        Index(None, "run", "stream", "kind", "step"),
    )
