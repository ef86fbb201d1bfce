"""The first tables: runs, their generations, actors, and the plan log.

Revision: 0001, the first one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "actors",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("incarnation", sa.String(length=64), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("capacity_bytes", sa.BigInteger(), nullable=False),
        sa.Column("registered_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_actors")),
        sa.UniqueConstraint("address", name=op.f("uq_actors_address")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "facts",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_facts")),
    )
    op.create_table(
        "runs",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_runs")),
    )
    op.create_table(
        "leases",
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("stream", sa.String(length=63), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("source", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("actor", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["actor"], ["actors.number"], name=op.f("fk_leases_actor"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], name=op.f("fk_leases_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "kind", "stream", "generation", "source", "slot", name=op.f("pk_leases")),
    )
    with op.batch_alter_table("leases", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_leases_actor"), ["actor"], unique=False)

    op.create_table(
        "revisions",
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("base", sa.Integer(), nullable=True),
        sa.Column("from_step", sa.BigInteger(), nullable=False),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("schedule", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], name=op.f("fk_revisions_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "revision", name=op.f("pk_revisions")),
    )
    op.create_table(
        "sources",
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("num_rows", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], name=op.f("fk_sources_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "ordinal", name=op.f("pk_sources")),
    )
    op.create_table(
        "streams",
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], name=op.f("fk_streams_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "name", name=op.f("pk_streams")),
    )
    op.create_table(
        "verdicts",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("stream", sa.String(length=63), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], name=op.f("fk_verdicts_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_verdicts")),
        sa.UniqueConstraint(
            "run",
            "source",
            "shard",
            "block",
            "row",
            "kind",
            "stream",
            "step",
            name=op.f("uq_verdicts_run_source_shard_block_row_kind_stream_step"),
        ),
    )
    op.create_table(
        "generations",
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("stream", sa.String(length=63), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=False),
        sa.Column("parent_step", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("mesh", sa.JSON(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("code", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("planned", sa.BigInteger(), nullable=False),
        sa.Column("bound", sa.BigInteger(), nullable=False),
        sa.Column("acknowledged", sa.BigInteger(), nullable=False),
        sa.Column("end_step", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run", "stream"],
            ["streams.run", "streams.name"],
            name=op.f("fk_generations_run_stream"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run", "stream", "generation", name=op.f("pk_generations")),
    )
    with op.batch_alter_table("generations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_generations_state"), ["state"], unique=False)

    op.create_table(
        "checkpoints",
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("stream", sa.String(length=63), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run", "stream", "generation"],
            ["generations.run", "generations.stream", "generations.generation"],
            name=op.f("fk_checkpoints_run_stream_generation"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run", "stream", "generation", "step", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "members",
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("stream", sa.String(length=63), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("nonce", sa.String(length=64), nullable=False),
        sa.Column("last_seen", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run", "stream", "generation"],
            ["generations.run", "generations.stream", "generations.generation"],
            name=op.f("fk_members_run_stream_generation"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run", "stream", "generation", "rank", name=op.f("pk_members")),
    )
    with op.batch_alter_table("members", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_members_run_stream_rank_nonce"), ["run", "stream", "rank", "nonce"], unique=False
        )

    op.create_table(
        "plans",
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("stream", sa.String(length=63), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("is_final", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run", "stream", "generation"],
            ["generations.run", "generations.stream", "generations.generation"],
            name=op.f("fk_plans_run_stream_generation"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run", "stream", "generation", "step", name=op.f("pk_plans")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("plans")
    with op.batch_alter_table("members", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_members_run_stream_rank_nonce"))

    op.drop_table("members")
    op.drop_table("checkpoints")
    with op.batch_alter_table("generations", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_generations_state"))

    op.drop_table("generations")
    op.drop_table("verdicts")
    op.drop_table("streams")
    op.drop_table("sources")
    op.drop_table("revisions")
    with op.batch_alter_table("leases", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_leases_actor"))

    op.drop_table("leases")
    op.drop_table("runs")
    op.drop_table("facts")
    op.drop_table("actors")
