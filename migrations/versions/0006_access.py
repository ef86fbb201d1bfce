"""API tokens, browser sessions, and one-time sign-in codes.

Revision: 0006, after 0005.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NAME, ID = sa.String(length=200), sa.String(length=32)


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "api_tokens",
        *_identity(),
        sa.Column("created_by", NAME, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("last_used_at", sa.Float(), nullable=True),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_tokens")),
    )
    op.create_table(
        "browser_sessions",
        *_identity(),
        sa.Column("token", ID, nullable=True),
        sa.Column("agent", NAME, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_browser_sessions")),
    )
    with op.batch_alter_table("browser_sessions") as sessions:
        sessions.create_index(sessions.f("ix_browser_sessions_token"), ["token"])
    op.create_table(
        "sign_in_codes",
        *_identity(),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sign_in_codes")),
    )


def _identity() -> list[sa.Column[object]]:
    """Columns are never shared between tables: made anew each time."""
    return [
        sa.Column("id", ID, nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("roles", sa.JSON(), nullable=False),
    ]


def downgrade() -> None:
    """Take back."""
    for table in ("sign_in_codes", "browser_sessions", "api_tokens"):
        op.drop_table(table)
