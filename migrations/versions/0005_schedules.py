"""Drafts, scheduled publishes, and the audit log.

Revision: 0005, after 0004.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "drafts",
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("base", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("schedule", sa.JSON(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], name=op.f("fk_drafts_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run", "author", name=op.f("pk_drafts")),
    )
    _create_scheduled()
    _create_audit_log()


def _create_scheduled() -> None:
    op.create_table(
        "scheduled_publishes",
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("base", sa.Integer(), nullable=False),
        sa.Column("at_step", sa.BigInteger(), nullable=False),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("schedule", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], name=op.f("fk_scheduled_publishes_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_scheduled_publishes")),
    )
    with op.batch_alter_table("scheduled_publishes") as scheduled:
        scheduled.create_index(scheduled.f("ix_scheduled_publishes_run_state"), ["run", "state"])


def _create_audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("run", sa.String(length=63), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit_log")),
    )
    with op.batch_alter_table("audit_log") as audit_log:
        audit_log.create_index(audit_log.f("ix_audit_log_run_number"), ["run", "number"])


def downgrade() -> None:
    """Take back."""
    for table in ("audit_log", "scheduled_publishes", "drafts"):
        op.drop_table(table)
