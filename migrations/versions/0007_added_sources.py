"""Sources that were added to a run after it was created have their own spec.

Revision: 0007, after 0006.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("sources") as sources:
        sources.add_column(sa.Column("spec", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("sources") as sources:
        sources.drop_column("spec")
