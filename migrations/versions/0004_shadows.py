"""Shadows among the leases, and the lease of the planner that acts.

Revision: 0004, after 0003.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KEY = ("run", "kind", "stream", "generation", "source", "slot")


def upgrade() -> None:
    """Apply. Leases are made anew: they are derived from who is there."""
    _replace_leases([*KEY, "standby"])
    op.create_table(
        "planner_lease",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(length=255), nullable=False),
        sa.Column("place", sa.String(length=1024), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_planner_lease")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("planner_lease")
    _replace_leases(list(KEY))


def _replace_leases(key: list[str]) -> None:
    op.drop_table("leases")
    standby = [sa.Column("standby", sa.Integer(), nullable=False)] if "standby" in key else []
    op.create_table(
        "leases",
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("stream", sa.String(length=63), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("source", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        *standby,
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("actor", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["actor"], ["actors.number"], name=op.f("fk_leases_actor"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], name=op.f("fk_leases_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint(*key, name=op.f("pk_leases")),
    )
    with op.batch_alter_table("leases", schema=None) as leases:
        leases.create_index(leases.f("ix_leases_actor"), ["actor"], unique=False)
