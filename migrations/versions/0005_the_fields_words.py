"""Renames tables and columns to the field's words; every row stays."""

# ruff: noqa: E501
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Each table is made anew and filled from the old one: constraint names contain the table's name, and SQLite cannot
# rename a constraint. old table → (new table, {old column: new column})
RENAMED = {
    "ask": ("approval", {"ask_id": "approval_id", "words": "message", "silent_until_ms": "muted_until_ms"}),
    "charge": ("invoice_line", {}),
    "seen_word": ("seen_value", {"word": "value"}),
    "stranger": ("foreign_instance", {}),
    "use_sample": ("utilisation_sample", {}),
    "watch_memory": ("watch_state", {}),
}
COLUMNS = [
    ("auto_price", "reckoned_at_ms", "computed_at_ms"),
    ("checklist_tick", "words", "note"),
    ("delivery", "taken", "settled_recipients"),
    ("launch_event", "provider_words", "provider_message"),
]
# PostgreSQL keeps them; table → (new, old)
COMMENTS = {
    "alert": (
        "one alert; body is its JSON; once_key makes sure that it is sent once only",
        "one alert; body is its JSON; once_key makes 'told once' a constraint",
    ),
    "auto_price": (
        'max_price = "auto": when the watch was first evaluated, and the newest limit',
        'max_price = "auto": when the watch was first looked at, and the newest limit that was reckoned',
    ),
    "checklist_tick": (
        "the items of a watch's `require` that the owner has ticked",
        "what the owner has ticked of a watch's `require`",
    ),
    "history_state": (
        "one row: version grows with every change of an interval, so that a writer sees whether its memory is still current; next_hour is the first hour without a roll-up; intervals before kept_from_s were pruned",
        "one row: version grows with every change of intervals, so that a writer sees whether its memory is still right; next_hour is the first hour without a roll-up; before kept_from_s intervals were pruned",
    ),
    "hook_run": (
        "the owner's hooks: written with the transition that triggers them, run afterwards; body is the launch as JSON",
        "the owner's hooks: written with the step that calls for them, run afterwards; body is the launch as JSON",
    ),
    "launch_event": ("every transition of a launch, with its cause", "every step of a launch, with its cause"),
    "machine_note": (
        "the owner's decision on a machine; 'allowed' also clears the failures on it before at_ms",
        "the owner's word on a machine; 'allowed' forgives what failed on it before at_ms",
    ),
    "pause": (
        "nothing is rented: scope '' = at all, 'watch:NAME' = by that watch, 'breaker:NAME' = its launches failed; until_ms NULL: until resumed",
        "nothing is rented: scope '' = at all, 'watch:NAME' = by that watch; until_ms NULL: until it is resumed",
    ),
    "place": (
        "where machines are; '' where the provider does not say",
        "where machines stand; '' where the provider does not say",
    ),
    "poll": (
        "every search; gpu '' = all models; completeness 'failed' = no answer: a gap, never 'no offers'; covers 1: an offer that it does not show (listed at or under complete_to_microusd, if set) is gone",
        "every question asked; gpu '' = all models; completeness 'failed' = no answer: a gap, never 'no offers'; covers 1: what it does not show (listed at or under complete_to_microusd, if set) is gone",
    ),
    "price_interval": (
        "one price from first seen to last seen; seen_to_s NULL: still current at the newest poll that covers it",
        "one price from first seen to last seen; seen_to_s NULL: still so at the newest poll that covers it",
    ),
    "provider_health": (
        "blind_since_ms is set when the owner was alerted",
        "blind_since_ms is set once the owner was told",
    ),
}


def upgrade() -> None:
    _create_new()
    for old, (new, columns) in RENAMED.items():
        _move(old, new, columns)
    op.create_index(op.f("ix_approval_watch_state"), "approval", ["watch", "state"], unique=False)
    for table, old, new in COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    for table, (new, old) in COMMENTS.items():
        _comment(table, new, old)


def downgrade() -> None:
    for table, (new, old) in COMMENTS.items():
        _comment(table, old, new)
    for table, old, new in COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}")
    _create_old()
    for old, (new, columns) in RENAMED.items():
        _move(new, old, {after: before for before, after in columns.items()})
    op.create_index(op.f("ix_ask_watch_state"), "ask", ["watch", "state"], unique=False)


def _move(source: str, target: str, renamed: dict[str, str]) -> None:
    """Copy every row, and drop the source."""
    columns = [column["name"] for column in sa.inspect(op.get_bind()).get_columns(source)]
    into = ", ".join(renamed.get(name, name) for name in columns)
    op.execute(f"INSERT INTO {target} ({into}) SELECT {', '.join(columns)} FROM {source}")
    op.drop_table(source)


def _comment(table: str, new: str, old: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment(table, new, existing_comment=old)


def _create_new() -> None:
    _create_approval(
        "approval",
        "approval_id",
        "message",
        "muted_until_ms",
        "a quote that waits for the owner's approval; it is answered once: state leaves 'open' by one UPDATE",
    )
    _create_invoice_line(
        "invoice_line",
        "what the provider charged, per UTC day (days since 1970) and kind; final 0: it may still change",
    )
    _create_seen_value(
        "seen_value",
        "value",
        "GPU spellings, field names and skip reasons that were reported already, or are simply known",
    )
    _create_foreign_instance(
        "foreign_instance", "labelled instances that the owner said belong to another installation"
    )
    _create_utilisation_sample(
        "utilisation_sample",
        "GPU utilisation of an instance, one row per poll; percent NULL: the provider did not say, never 0",
    )
    _create_watch_state("watch_state", "what a watch remembers between polls")


def _create_old() -> None:
    _create_approval(
        "ask",
        "ask_id",
        "words",
        "silent_until_ms",
        "a quote that waits for the owner's word; it is answered once: state leaves 'open' by one UPDATE",
    )
    _create_invoice_line(
        "charge",
        "what the provider says it charged, per UTC day (days since 1970) and kind; final 0: it may still change",
    )
    _create_seen_value(
        "seen_word", "word", "GPU spellings, field names, skip reasons that were told already, or are simply known"
    )
    _create_foreign_instance("stranger", "labelled instances that the owner said are not of this installation")
    _create_utilisation_sample(
        "use_sample", "GPU use of an instance, one row per look; percent NULL: the provider did not say, never 0"
    )
    _create_watch_state("watch_memory", "what a watch remembers between looks")


def _create_approval(name: str, key: str, message: str, muted_until_ms: str, comment: str) -> None:
    op.create_table(
        name,
        sa.Column(key, sa.String(length=32), nullable=False),
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
        sa.Column(message, sa.Text(), nullable=True),
        sa.Column(muted_until_ms, sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state IN ('open', 'approved', 'denied', 'expired', 'refused')", name=op.f(f"ck_{name}_state")
        ),
        sa.PrimaryKeyConstraint(key, name=op.f(f"pk_{name}")),
        comment=comment,
    )


def _create_invoice_line(name: str, comment: str) -> None:
    op.create_table(
        name,
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=12), nullable=False),
        sa.Column("microusd", sa.BigInteger(), nullable=False),
        sa.Column("final", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "instance_id", "day", "kind", name=op.f(f"pk_{name}")),
        comment=comment,
    )


def _create_seen_value(name: str, value: str, comment: str) -> None:
    op.create_table(
        name,
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column(value, sa.String(length=200), nullable=False),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "kind", value, name=op.f(f"pk_{name}")),
        comment=comment,
    )


def _create_foreign_instance(name: str, comment: str) -> None:
    op.create_table(
        name,
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "instance_id", name=op.f(f"pk_{name}")),
        comment=comment,
    )


def _create_utilisation_sample(name: str, comment: str) -> None:
    op.create_table(
        name,
        sa.Column("launch_id", sa.String(length=32), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("percent", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["launch_id"], ["launch.launch_id"], name=op.f(f"fk_{name}_launch_id_launch")),
        sa.PrimaryKeyConstraint("launch_id", "at_ms", name=op.f(f"pk_{name}")),
        comment=comment,
    )


def _create_watch_state(name: str, comment: str) -> None:
    op.create_table(
        name,
        sa.Column("watch", sa.String(length=200), nullable=False),
        sa.Column("fired_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("fired_microusd_gpu_hour", sa.Float(), nullable=True),
        sa.Column("under_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("misses", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("watch", name=op.f(f"pk_{name}")),
        comment=comment,
    )
