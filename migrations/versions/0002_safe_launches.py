"""Adds what keeps launches safe: their limits, events, pauses, approvals, hooks and invoices."""

# ruff: noqa: E501
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ask",
        sa.Column("ask_id", sa.String(length=32), nullable=False),
        sa.Column("watch", sa.String(length=200), nullable=False),
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("offer", sa.Text(), nullable=False),
        sa.Column("listed_microusd_hour", sa.BigInteger(), nullable=False),
        sa.Column("price_microusd_hour", sa.BigInteger(), nullable=False),
        sa.Column("answered_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("launch_id", sa.String(length=32), nullable=True),
        sa.Column("words", sa.Text(), nullable=True),
        sa.Column("silent_until_ms", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("state IN ('open', 'approved', 'denied', 'expired', 'refused')", name=op.f("ck_ask_state")),
        sa.PrimaryKeyConstraint("ask_id", name=op.f("pk_ask")),
        comment="a quote that waits for the owner's word; it is answered once: state leaves 'open' by one UPDATE",
    )
    op.create_index(op.f("ix_ask_watch_state"), "ask", ["watch", "state"], unique=False)
    op.create_table(
        "charge",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=12), nullable=False),
        sa.Column("microusd", sa.BigInteger(), nullable=False),
        sa.Column("final", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "instance_id", "day", "kind", name=op.f("pk_charge")),
        comment="what the provider says it charged, per UTC day (days since 1970) and kind; final 0: it may still change",
    )
    op.create_table(
        "machine_note",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("machine_id", sa.String(length=64), nullable=False),
        sa.Column("verdict", sa.String(length=8), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.CheckConstraint("verdict IN ('blocked', 'allowed')", name=op.f("ck_machine_note_verdict")),
        sa.PrimaryKeyConstraint("provider", "machine_id", name=op.f("pk_machine_note")),
        comment="the owner's word on a machine; 'allowed' forgives what failed on it before at_ms",
    )
    op.create_table(
        "pause",
        sa.Column("scope", sa.String(length=210), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_pause")),
        comment="nothing is rented: scope '' = at all, 'watch:NAME' = by that watch; until_ms NULL: until it is resumed",
    )
    op.create_table(
        "stranger",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "instance_id", name=op.f("pk_stranger")),
        comment="labelled instances that the owner said are not of this installation",
    )
    op.create_table(
        "hook_run",
        sa.Column("launch_id", sa.String(length=32), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_try_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("leased_until_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.CheckConstraint("state IN ('pending', 'done', 'failed')", name=op.f("ck_hook_run_state")),
        sa.ForeignKeyConstraint(["launch_id"], ["launch.launch_id"], name=op.f("fk_hook_run_launch_id_launch")),
        sa.PrimaryKeyConstraint("launch_id", "event", name=op.f("pk_hook_run")),
        comment="the owner's hooks: written with the step that calls for them, run afterwards; body is the launch as JSON",
    )
    op.create_index(op.f("ix_hook_run_state_next_try_at_ms"), "hook_run", ["state", "next_try_at_ms"], unique=False)
    op.create_table(
        "use_sample",
        sa.Column("launch_id", sa.String(length=32), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("percent", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["launch_id"], ["launch.launch_id"], name=op.f("fk_use_sample_launch_id_launch")),
        sa.PrimaryKeyConstraint("launch_id", "at_ms", name=op.f("pk_use_sample")),
        comment="GPU use of an instance, one row per look; percent NULL: the provider did not say, never 0",
    )
    op.add_column("launch", sa.Column("most_microusd_hour", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("launch", sa.Column("bid_microusd_hour", sa.BigInteger(), nullable=True))
    op.add_column("launch", sa.Column("spans", sa.Text(), nullable=True))
    op.add_column("launch", sa.Column("condition", sa.String(length=12), nullable=True))
    op.add_column("launch", sa.Column("condition_since_ms", sa.BigInteger(), nullable=True))
    op.add_column("launch", sa.Column("promised", sa.Text(), nullable=True))
    op.add_column("launch", sa.Column("tries", sa.Integer(), server_default="1", nullable=False))
    op.add_column("launch", sa.Column("relaunch_of", sa.String(length=32), nullable=True))
    op.add_column("launch_event", sa.Column("listed_microusd_hour", sa.BigInteger(), nullable=True))
    op.add_column("launch_event", sa.Column("price_microusd_hour", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("launch_event", "price_microusd_hour")
    op.drop_column("launch_event", "listed_microusd_hour")
    op.drop_column("launch", "relaunch_of")
    op.drop_column("launch", "tries")
    op.drop_column("launch", "promised")
    op.drop_column("launch", "condition_since_ms")
    op.drop_column("launch", "condition")
    op.drop_column("launch", "spans")
    op.drop_column("launch", "bid_microusd_hour")
    op.drop_column("launch", "most_microusd_hour")
    op.drop_table("use_sample")
    op.drop_index(op.f("ix_hook_run_state_next_try_at_ms"), table_name="hook_run")
    op.drop_table("hook_run")
    op.drop_table("stranger")
    op.drop_table("pause")
    op.drop_table("machine_note")
    op.drop_table("charge")
    op.drop_index(op.f("ix_ask_watch_state"), table_name="ask")
    op.drop_table("ask")
