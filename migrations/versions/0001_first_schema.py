"""Creates the tables of history, watches, alerts and launches."""

# ruff: noqa: E501
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "alert",
        sa.Column("alert_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("watch", sa.String(length=200), nullable=True),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("once_key", sa.String(length=200), nullable=True),
        sa.PrimaryKeyConstraint("alert_id", name=op.f("pk_alert")),
        sa.UniqueConstraint("once_key", name=op.f("uq_alert_once_key")),
        comment="one alert; body is its JSON; once_key makes 'told once' a constraint",
    )
    op.create_table(
        "history_state",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("next_hour", sa.Integer(), nullable=True),
        sa.Column("kept_from_s", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_history_state")),
        comment="one row: version grows with every change of intervals, so that a writer sees whether its memory is still right; next_hour is the first hour without a roll-up; before kept_from_s intervals were pruned",
    )
    op.create_table(
        "launch",
        sa.Column("launch_id", sa.String(length=32), nullable=False),
        sa.Column("watch", sa.String(length=200), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("offer_id", sa.String(length=64), nullable=False),
        sa.Column("machine_id", sa.String(length=64), nullable=True),
        sa.Column("gpu", sa.String(length=200), nullable=False),
        sa.Column("gpu_count", sa.SmallInteger(), nullable=False),
        sa.Column("spot", sa.SmallInteger(), nullable=False),
        sa.Column("instance_id", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("label", sa.String(length=64), nullable=False),
        sa.Column("listed_microusd_hour", sa.BigInteger(), nullable=False),
        sa.Column("price_microusd_hour", sa.BigInteger(), nullable=False),
        sa.Column("disk_microusd_hour", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("max_runtime_s", sa.Float(), nullable=True),
        sa.Column("ready_within_s", sa.Float(), nullable=True),
        sa.Column("intended_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("requested_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("running_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint(
            "state IN ('intended', 'requested', 'starting', 'running', 'stopping', 'ended', 'failed', 'unknown', 'held')",
            name=op.f("ck_launch_state"),
        ),
        sa.PrimaryKeyConstraint("launch_id", name=op.f("pk_launch")),
        comment="one decision to rent, from the intent to the end; version is a fencing number",
    )
    op.create_index(
        "uq_launch_offer_alive",
        "launch",
        ["provider", "offer_id"],
        unique=True,
        sqlite_where=sa.text("state NOT IN ('ended', 'failed')"),
        postgresql_where=sa.text("state NOT IN ('ended', 'failed')"),
    )
    op.create_index(
        "uq_launch_slot_alive",
        "launch",
        ["watch", "slot"],
        unique=True,
        sqlite_where=sa.text("state NOT IN ('ended', 'failed')"),
        postgresql_where=sa.text("state NOT IN ('ended', 'failed')"),
    )
    op.create_table(
        "place",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("region", sa.String(length=200), nullable=False),
        sa.Column("country", sa.String(length=2), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_place")),
        sa.UniqueConstraint("region", "country", name=op.f("uq_place_region_country")),
        comment="where machines stand; '' where the provider does not say",
    )
    op.create_table(
        "poll",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("lane", sa.String(length=8), nullable=False),
        sa.Column("gpu", sa.String(length=200), nullable=False),
        sa.Column("spot", sa.SmallInteger(), nullable=False),
        sa.Column("at_s", sa.Integer(), nullable=False),
        sa.Column("completeness", sa.String(length=12), nullable=False),
        sa.Column("covers", sa.SmallInteger(), nullable=False),
        sa.Column("complete_to_microusd", sa.BigInteger(), nullable=True),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("elapsed_ms", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_poll")),
        comment="every question asked; gpu '' = all models; completeness 'failed' = no answer: a gap, never 'no offers'; covers 1: what it does not show (listed at or under complete_to_microusd, if set) is gone",
    )
    op.create_index(
        "ix_poll_covering",
        "poll",
        ["provider", "gpu", "spot", "at_s"],
        unique=False,
        sqlite_where=sa.text("covers = 1"),
        postgresql_where=sa.text("covers = 1"),
    )
    op.create_index(op.f("ix_poll_provider_at_s"), "poll", ["provider", "at_s"], unique=False)
    op.create_table(
        "provider_health",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("complete_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("blind_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("provider", name=op.f("pk_provider_health")),
        comment="blind_since_ms is set once the owner was told",
    )
    op.create_table(
        "quota_day",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "day", name=op.f("pk_quota_day")),
        comment="rows returned per UTC day (days since 1970)",
    )
    op.create_table(
        "seen_word",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("word", sa.String(length=200), nullable=False),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "kind", "word", name=op.f("pk_seen_word")),
        comment="GPU spellings, field names, skip reasons that were told already, or are simply known",
    )
    op.create_table(
        "segment",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("gpu", sa.String(length=200), nullable=False),
        sa.Column("gpu_count", sa.SmallInteger(), nullable=False),
        sa.Column("spot", sa.SmallInteger(), nullable=False),
        sa.Column("gpu_family", sa.String(length=200), nullable=False),
        sa.Column("gpu_memory_gib", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_segment")),
        sa.UniqueConstraint(
            "provider", "gpu", "gpu_count", "spot", name=op.f("uq_segment_provider_gpu_gpu_count_spot")
        ),
        comment="a part of the market; provider '' and gpu_count 0 are the sum over all providers and counts",
    )
    op.create_table(
        "watch_memory",
        sa.Column("watch", sa.String(length=200), nullable=False),
        sa.Column("fired_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("fired_microusd_gpu_hour", sa.Float(), nullable=True),
        sa.Column("under_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("misses", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("watch", name=op.f("pk_watch_memory")),
        comment="what a watch remembers between looks",
    )
    op.create_table(
        "delivery",
        sa.Column("alert_id", sa.String(length=32), nullable=False),
        sa.Column("channel", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_try_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("leased_until_ms", sa.BigInteger(), nullable=True),
        sa.Column("sent_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("taken", sa.Text(), nullable=True),
        sa.CheckConstraint("state IN ('pending', 'sent', 'expired', 'refused')", name=op.f("ck_delivery_state")),
        sa.ForeignKeyConstraint(["alert_id"], ["alert.alert_id"], name=op.f("fk_delivery_alert_id_alert")),
        sa.PrimaryKeyConstraint("alert_id", "channel", name=op.f("pk_delivery")),
        comment="the outbox: one row per alert and channel",
    )
    op.create_index(op.f("ix_delivery_state_next_try_at_ms"), "delivery", ["state", "next_try_at_ms"], unique=False)
    op.create_table(
        "hourly",
        sa.Column("segment_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("min_microusd", sa.BigInteger(), nullable=False),
        sa.Column("q1_microusd", sa.BigInteger(), nullable=False),
        sa.Column("median_microusd", sa.BigInteger(), nullable=False),
        sa.Column("q3_microusd", sa.BigInteger(), nullable=False),
        sa.Column("offers", sa.Integer(), nullable=False),
        sa.Column("offer_seconds", sa.Integer(), nullable=False),
        sa.Column("sketch", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["segment_id"], ["segment.id"], name=op.f("fk_hourly_segment_id_segment")),
        sa.PrimaryKeyConstraint("segment_id", "hour", name=op.f("pk_hourly")),
        comment="listed GPU prices of one hour, weighted by the time each was on offer",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "launch_event",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("launch_id", sa.String(length=32), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("from_state", sa.String(length=12), nullable=True),
        sa.Column("to_state", sa.String(length=12), nullable=False),
        sa.Column("cause", sa.String(length=200), nullable=False),
        sa.Column("provider_words", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["launch_id"], ["launch.launch_id"], name=op.f("fk_launch_event_launch_id_launch")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_launch_event")),
        comment="every step of a launch, with its cause",
    )
    op.create_index(op.f("ix_launch_event_launch_id_at_ms"), "launch_event", ["launch_id", "at_ms"], unique=False)
    op.create_table(
        "series",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("segment_id", sa.Integer(), nullable=False),
        sa.Column("machine_id", sa.String(length=64), nullable=False),
        sa.Column("on_offer", sa.SmallInteger(), nullable=False),
        sa.Column("offer_id", sa.String(length=64), nullable=False),
        sa.Column("place_id", sa.Integer(), nullable=False),
        sa.Column("reliability_ppm", sa.Integer(), nullable=True),
        sa.Column("verification", sa.SmallInteger(), nullable=True),
        sa.ForeignKeyConstraint(["place_id"], ["place.id"], name=op.f("fk_series_place_id_place")),
        sa.ForeignKeyConstraint(["segment_id"], ["segment.id"], name=op.f("fk_series_segment_id_segment")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint("segment_id", "machine_id", name=op.f("uq_series_segment_id_machine_id")),
        comment="one identity: provider × machine × GPU × count × rental type",
    )
    op.create_table(
        "price_interval",
        sa.Column("series_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seen_from_s", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seen_to_s", sa.Integer(), nullable=True),
        sa.Column("machine_microusd_hour", sa.BigInteger(), nullable=False),
        sa.Column("disk_microusd_gb_month", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_price_interval_series_id_series")),
        sa.PrimaryKeyConstraint("series_id", "seen_from_s", name=op.f("pk_price_interval")),
        comment="one price from first seen to last seen; seen_to_s NULL: still so at the newest poll that covers it",
        sqlite_with_rowid=False,
    )
    op.execute("INSERT INTO history_state (id, version) VALUES (1, 1)")


def downgrade() -> None:
    op.drop_table("price_interval")
    op.drop_table("series")
    op.drop_index(op.f("ix_launch_event_launch_id_at_ms"), table_name="launch_event")
    op.drop_table("launch_event")
    op.drop_table("hourly")
    op.drop_index(op.f("ix_delivery_state_next_try_at_ms"), table_name="delivery")
    op.drop_table("delivery")
    op.drop_table("watch_memory")
    op.drop_table("segment")
    op.drop_table("seen_word")
    op.drop_table("quota_day")
    op.drop_table("provider_health")
    op.drop_index(op.f("ix_poll_provider_at_s"), table_name="poll")
    op.drop_index(
        "ix_poll_covering",
        table_name="poll",
        sqlite_where=sa.text("covers = 1"),
        postgresql_where=sa.text("covers = 1"),
    )
    op.drop_table("poll")
    op.drop_table("place")
    op.drop_index(
        "uq_launch_slot_alive",
        table_name="launch",
        sqlite_where=sa.text("state NOT IN ('ended', 'failed')"),
        postgresql_where=sa.text("state NOT IN ('ended', 'failed')"),
    )
    op.drop_index(
        "uq_launch_offer_alive",
        table_name="launch",
        sqlite_where=sa.text("state NOT IN ('ended', 'failed')"),
        postgresql_where=sa.text("state NOT IN ('ended', 'failed')"),
    )
    op.drop_table("launch")
    op.drop_table("history_state")
    op.drop_table("alert")
