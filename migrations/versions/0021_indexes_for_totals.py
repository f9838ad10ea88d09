"""Adds indexes for the costs of a month."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_launch_watch_dry_run_requested_at_ms", "launch", ["watch", "dry_run", "requested_at_ms"])
    op.create_index("ix_invoice_line_day", "invoice_line", ["day"])


def downgrade() -> None:
    op.drop_index("ix_invoice_line_day", "invoice_line")
    op.drop_index("ix_launch_watch_dry_run_requested_at_ms", "launch")
