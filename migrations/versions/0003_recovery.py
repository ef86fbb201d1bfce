"""Replay and skipping of generations; bodies of old plans in segment files.

Revision: 0003, after 0002.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BOUNDS = ("skip_first", "skip_last", "held_from")


def upgrade() -> None:
    """Apply."""
    _add_generation_columns()
    op.create_table(
        "segments",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("stream", sa.String(length=63), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.String(length=255), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("written_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], name=op.f("fk_segments_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_segments")),
        sa.UniqueConstraint("path", name=op.f("uq_segments_path")),
    )
    with op.batch_alter_table("plans") as plans:
        plans.alter_column("body", existing_type=sa.LargeBinary(), nullable=True)
        plans.add_column(sa.Column("intervals", sa.LargeBinary(), nullable=True))
        plans.add_column(sa.Column("segment", sa.Integer(), nullable=True))


def _add_generation_columns() -> None:
    with op.batch_alter_table("generations") as generations:
        generations.add_column(sa.Column("replay_until", sa.BigInteger(), nullable=True))
        for name in BOUNDS:
            generations.add_column(sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE generations SET held_from = first_step")
    with op.batch_alter_table("generations") as generations:
        for name in BOUNDS:
            generations.alter_column(name, existing_type=sa.BigInteger(), server_default=None)


def downgrade() -> None:
    """Undo. Plans whose bodies are in segment files are dropped with what was planned on them."""
    op.execute("DELETE FROM plans WHERE body IS NULL")
    with op.batch_alter_table("plans") as plans:
        plans.drop_column("segment")
        plans.drop_column("intervals")
        plans.alter_column("body", existing_type=sa.LargeBinary(), nullable=False)
    op.drop_table("segments")
    with op.batch_alter_table("generations") as generations:
        for name in (*BOUNDS, "replay_until"):
            generations.drop_column(name)
