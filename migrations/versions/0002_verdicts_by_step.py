"""Verdicts by stream and step, as they are read back when a run goes on; counts of a source's epoch.

Revision: 0002, after 0001.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COUNTS = ("epoch_rows", "epoch_samples", "epoch_tokens")


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("verdicts") as verdicts:
        verdicts.create_index(op.f("ix_verdicts_run_stream_kind_step"), ["run", "stream", "kind", "step"])
    with op.batch_alter_table("sources") as sources:
        for name in COUNTS:
            sources.add_column(sa.Column(name, sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Undo."""
    with op.batch_alter_table("sources") as sources:
        for name in reversed(COUNTS):
            sources.drop_column(name)
    with op.batch_alter_table("verdicts") as verdicts:
        verdicts.drop_index(op.f("ix_verdicts_run_stream_kind_step"))
