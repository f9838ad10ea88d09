"""The tables of jobs."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    String,
    Table,
    Text,
    literal_column,
    text,
)

from gpuwatch.storage.setup.side_tables import metadata, partial_index

JOB_STATES = (
    *("queued", "renting", "preparing", "running", "fetching", "done"),
    *("paused", "preempted", "failed", "cancelled"),
)
JOBS_OVER = ("done", "failed", "cancelled")
_JOB_IS_OPEN = text("state NOT IN ('" + "', '".join(JOBS_OVER) + "')")

job = Table(
    "job",
    metadata,
    Column("job_id", String(8), primary_key=True),
    Column("name", String(150), nullable=False),
    Column("definition", Text, nullable=False),  # JSON: the content of the job file, with references for secrets
    Column("state", String(12), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("deadline_ms", BigInteger),
    Column("submitted_at_ms", BigInteger, nullable=False),
    Column("started_at_ms", BigInteger),
    Column("ended_at_ms", BigInteger),
    Column("exit_code", Integer),
    Column("launch_id", String(32)),
    Column("progress", Float),
    Column("predicted_microusd", BigInteger),
    Column("spent_microusd", BigInteger, nullable=False, server_default="0"),
    Column("reason", Text),
    Column("run_number", Integer, nullable=False, server_default="0"),
    Column("retries_left", Integer, nullable=False, server_default="0"),
    Column("version", Integer, nullable=False, server_default="0"),
    Column("changed", BigInteger, nullable=False, server_default="0"),
    Column("series", String(150)),  # the recurring job that it is a run of
    Column("planned_at_ms", BigInteger),
    CheckConstraint("state IN ('" + "', '".join(JOB_STATES) + "')", name="state"),
    partial_index("uq_job_name_open", "name", unique=True, where=_JOB_IS_OPEN),
    # of runs alone: all open jobs are found by the index of names
    partial_index("uq_job_series_open", "series", unique=True, where=text(f"series IS NOT NULL AND {_JOB_IS_OPEN}")),
    Index("uq_job_series_planned", "series", "planned_at_ms", unique=True),
    Index(None, "submitted_at_ms"),
    Index(None, "changed"),
    comment="work to be done on a rented instance; version rises with every change, run_number with every run; "
    "changed: the number of its last change in job_changes",
)

JOB_IS_OPEN = job.c.state.not_in([literal_column(f"'{state}'") for state in JOBS_OVER])
job_changes = Table(
    "job_changes",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("changes", BigInteger, nullable=False),
    comment="one row: grows with every transaction that changes jobs, so that readers read what changed since",
)

job_series = Table(
    "job_series",
    metadata,
    Column("name", String(150), primary_key=True),
    Column("definition", Text, nullable=False),
    Column("submitted_at_ms", BigInteger, nullable=False),
    Column("next_at_ms", BigInteger, nullable=False),
    Column("last_job_id", String(8)),
    Column("last_planned_at_ms", BigInteger),
    Column("missed", Integer, nullable=False),
    Column("skipped", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("ended_at_ms", BigInteger),
    comment="recurring jobs, ended_at_ms: by their owner; definition: JSON of the job file with its schedule",
)

job_run = Table(
    "job_run",
    metadata,
    Column("job_id", String(8), ForeignKey("job.job_id"), primary_key=True),
    Column("run_number", Integer, primary_key=True, autoincrement=False),
    Column("launch_id", String(32), nullable=False),
    Column("step", String(32), nullable=False),
    Column("ssh_host", String(255)),
    Column("ssh_port", Integer),
    Column("ssh_user", String(64)),
    Column("host_key", Text),
    Column("started_at_ms", BigInteger),
    Column("lease_until_ms", BigInteger),
    Column("last_seen_at_ms", BigInteger),
    Column("exit_code", Integer),
    Column("checkpoint", Text),
    Column("results", Text, nullable=False),
    Column("ended_at_ms", BigInteger),
    Column("end_reason", Text),
    Column("held_from_ms", BigInteger),
    Column("held_until_ms", BigInteger),
    comment="one attempt of a job on one instance; results: JSON of what was fetched and verified",
)

job_event = Table(
    "job_event",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("job_id", String(8), ForeignKey("job.job_id"), nullable=False),
    Column("run_number", Integer, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("detail", Text, nullable=False),
    Index(None, "job_id", "id"),
    comment="what happened to a job; detail: JSON",
)
