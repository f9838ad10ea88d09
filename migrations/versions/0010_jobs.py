"""Adds jobs, with their runs and events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_STATES = (
    *("queued", "renting", "preparing", "running", "fetching", "done"),
    *("paused", "preempted", "failed", "cancelled"),
)
_OPEN = sa.text("state NOT IN ('done', 'failed', 'cancelled')")


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("job_id", sa.String(length=8), nullable=False),
        sa.Column("name", sa.String(length=150), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=True),
        sa.Column("submitted_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("launch_id", sa.String(length=32), nullable=True),
        sa.Column("progress", sa.Float(), nullable=True),
        sa.Column("predicted_microusd", sa.BigInteger(), nullable=True),
        sa.Column("spent_microusd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("run_number", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retries_left", sa.Integer(), server_default="0", nullable=False),
        sa.Column("version", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint("state IN ('" + "', '".join(_STATES) + "')", name=op.f("ck_job_state")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job")),
        comment="work to be done on a rented instance; version rises with every change, run_number with every run",
    )
    op.create_index("uq_job_name_open", "job", ["name"], unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN)
    op.create_index(op.f("ix_job_submitted_at_ms"), "job", ["submitted_at_ms"])
    op.create_table(
        "job_run",
        sa.Column("job_id", sa.String(length=8), nullable=False),
        sa.Column("run_number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("launch_id", sa.String(length=32), nullable=False),
        sa.Column("step", sa.String(length=32), nullable=False),
        sa.Column("ssh_host", sa.String(length=255), nullable=True),
        sa.Column("ssh_port", sa.Integer(), nullable=True),
        sa.Column("ssh_user", sa.String(length=64), nullable=True),
        sa.Column("host_key", sa.Text(), nullable=True),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("lease_until_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_seen_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("checkpoint", sa.Text(), nullable=True),
        sa.Column("results", sa.Text(), nullable=False),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.job_id"], name=op.f("fk_job_run_job_id_job")),
        sa.PrimaryKeyConstraint("job_id", "run_number", name=op.f("pk_job_run")),
        comment="one attempt of a job on one instance; results: JSON of what was fetched and verified",
    )
    op.create_table(
        "job_event",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(length=8), nullable=False),
        sa.Column("run_number", sa.Integer(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.job_id"], name=op.f("fk_job_event_job_id_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_event")),
        comment="what happened to a job; detail: JSON",
    )
    op.create_index(op.f("ix_job_event_job_id_id"), "job_event", ["job_id", "id"])


def downgrade() -> None:
    op.drop_table("job_event")
    op.drop_table("job_run")
    op.drop_table("job")
