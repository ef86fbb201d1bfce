"""Checkpoints say when they were written; of older ones that is not known.

Revision: 0008, after 0007.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply. A column that may be null needs no new table, and states are large."""
    op.add_column("checkpoints", sa.Column("written_at", sa.Float(), nullable=True))


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("checkpoints") as checkpoints:
        checkpoints.drop_column("written_at")
