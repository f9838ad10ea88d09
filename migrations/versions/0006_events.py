"""Gives each alert its severity, subject and headline; every alert stays."""

# ruff: noqa: E501
from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KINDS = {"offer": "match", "launch": "rent", "seeing": "recovered"}  # before → after
OLDER_KINDS = {
    "match": "offer",
    "approval": "offer",
    "rent": "launch",
    "end": "launch",
    "recovered": "seeing",
    "budget": "refused",
}
SEVERITIES = {
    "held": "critical",
    "orphan": "critical",
    "refused": "warning",
    "blind": "warning",
    "drift": "warning",
    "channel": "warning",
}  # of the others: info
COMMENTS = {
    "alert": (
        "every event, sent or not; body is its JSON; once_key makes sure that it is stored once only; routed_at_ms NULL: not logged or given to channels yet",
        "one alert; body is its JSON; once_key makes sure that it is sent once only",
    ),
}
_ALERT = sa.table("alert", *map(sa.column, ("alert_id", "kind", "watch", "body", "severity", "subject", "headline")))
_AT_ONCE = 1000  # rows
_UNROUTED = sa.text("routed_at_ms IS NULL")


def upgrade() -> None:
    op.add_column("alert", sa.Column("severity", sa.String(length=12), server_default="info", nullable=False))
    op.add_column("alert", sa.Column("subject", sa.String(length=200), nullable=True))
    op.add_column("alert", sa.Column("headline", sa.Text(), nullable=True))
    op.add_column("alert", sa.Column("routed_at_ms", sa.BigInteger(), nullable=True))
    op.add_column("delivery", sa.Column("first_try_at_ms", sa.BigInteger(), nullable=True))
    op.execute("UPDATE alert SET routed_at_ms = created_at_ms")
    op.create_index(op.f("ix_alert_created_at_ms"), "alert", ["created_at_ms"], unique=False)
    op.create_index(
        "ix_alert_unrouted",
        "alert",
        ["created_at_ms"],
        unique=False,
        sqlite_where=_UNROUTED,
        postgresql_where=_UNROUTED,
    )
    op.create_table(
        "silence",
        sa.Column("watch", sa.String(length=200), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("watch", name=op.f("pk_silence")),
        comment="the alerts of a watch are stored and logged, but not sent",
    )
    _change_alerts(_as_event)
    _create_provider_hold()
    _health_by_lane()
    _comment(new=0)


def downgrade() -> None:
    _comment(new=1)
    op.drop_table("provider_hold")
    _health_by_provider()
    _change_alerts(_as_before)
    op.drop_column("delivery", "first_try_at_ms")
    op.drop_table("silence")
    op.drop_index("ix_alert_unrouted", table_name="alert")
    op.drop_index(op.f("ix_alert_created_at_ms"), table_name="alert")
    for name in ("routed_at_ms", "headline", "subject", "severity"):
        op.drop_column("alert", name)


def _create_provider_hold() -> None:
    op.create_table(
        "provider_hold",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("set_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("quota_resets_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("provider", "kind", name=op.f("pk_provider_hold")),
        comment="a class of requests that a provider wants no more of before until_ms; quota_resets_ms: the day's rows are used up, and until_ms is the next probe",
    )


def _as_event(row: Any, body: dict[str, Any]) -> dict[str, Any]:
    body["kind"] = kind = _kind(row.kind, str(body.get("did", "")))
    about = row.watch or next((value for label, value in body.get("facts", ()) if label in {"Provider", "Channel"}), "")
    return {
        "kind": kind,
        "severity": SEVERITIES.get(kind, "info"),
        "subject": about[:200],
        "headline": body.get("headline", ""),
    }


def _kind(before: str, did: str) -> str:
    """A launch that was over, or ending, says so in what was done."""
    if before == "launch" and any(word in did for word in (" has ended.", " failed.", " is stopping")):
        return "end"
    return KINDS.get(before, before)


def _as_before(row: Any, body: dict[str, Any]) -> dict[str, Any]:
    body["kind"] = kind = OLDER_KINDS.get(row.kind, row.kind)
    return {"kind": kind}


def _change_alerts(change: Any) -> None:
    connection = op.get_bind()
    last = ""
    while rows := connection.execute(
        sa.select(_ALERT.c.alert_id, _ALERT.c.kind, _ALERT.c.watch, _ALERT.c.body)
        .where(_ALERT.c.alert_id > last)
        .order_by(_ALERT.c.alert_id)
        .limit(_AT_ONCE)
    ).all():
        for row in rows:
            body = json.loads(row.body)
            values = change(row, body)
            text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
            connection.execute(sa.update(_ALERT).where(_ALERT.c.alert_id == row.alert_id).values(body=text, **values))
        last = rows[-1].alert_id


def _health_by_lane() -> None:
    """What was known of a provider becomes what is known of its hunt, from which most of it came."""
    rows = op.get_bind().execute(sa.text("SELECT * FROM provider_health")).mappings().all()
    op.drop_table("provider_health")
    table = op.create_table(
        "provider_health",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("lane", sa.String(length=8), nullable=False),
        sa.Column("complete_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("blind_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("not_understood", sa.SmallInteger(), nullable=False),
        sa.Column("reported", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "lane", name=op.f("pk_provider_health")),
        comment="lane: hunt or sweep; not_understood 1: blind until a row is understood; reported 0: blind, too, with a lane whose alert covers both",
    )
    op.bulk_insert(table, [{**row, "lane": "hunt", "not_understood": 0, "reported": 1} for row in rows])


def _health_by_provider() -> None:
    """Of two lanes the hunt's health stays."""
    columns = "provider, complete_at_ms, blind_since_ms, last_error"
    found = op.get_bind().execute(sa.text(f"SELECT {columns} FROM provider_health ORDER BY lane DESC")).mappings().all()
    op.drop_table("provider_health")
    table = op.create_table(
        "provider_health",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("complete_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("blind_since_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("provider", name=op.f("pk_provider_health")),
        comment="blind_since_ms is set when the owner was alerted",
    )
    op.bulk_insert(table, [*{row["provider"]: dict(row) for row in found}.values()])  # "hunt" comes last


def _comment(new: int) -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table, texts in COMMENTS.items():
            op.create_table_comment(table, texts[new], existing_comment=texts[1 - new])
