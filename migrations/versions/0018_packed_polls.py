"""Packs the polls of each day that is over, and counts searches; reads every poll once.

The totals are filled here, from ranges of ids, so that memory stays small; the daemon packs one day after the other.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_COMMENT = (
    "one row: version grows with every change of an interval, so that a writer sees whether its memory "
    "is still current; next_hour is the first hour without a roll-up; intervals before kept_from_s were pruned; "
    "rewritten grows with every change of what was over: late polls, imports, a clock set back, pruning"
)
_WITH_DAY = f"{_COMMENT}; the polls of the days before packed_to_day are in poll_day"
_POLLS_PER_STEP = 100_000
_SCOPE = ("provider", "gpu", "spot", "lane")
_COUNTS = sa.text(
    "SELECT provider, gpu, spot, lane, count(*) AS searches, sum(rows) AS rows,"
    " max(CASE WHEN completeness IN ('complete', 'truncated') THEN at_s END) AS answered_s,"
    " max(CASE WHEN completeness = 'complete' THEN at_s END) AS complete_s"
    " FROM poll WHERE id >= :first AND id < :after GROUP BY provider, gpu, spot, lane"
)
_ANSWER = sa.text(
    "SELECT rows, skipped FROM poll WHERE provider = :provider AND at_s = :at_s AND gpu = :gpu AND spot = :spot"
    " AND lane = :lane AND completeness IN ('complete', :truncated) ORDER BY id DESC LIMIT 1"
)


def upgrade() -> None:
    op.create_table(
        "poll_day",
        sa.Column("provider", sa.String(32), nullable=False),
        sa.Column("gpu", sa.String(200), nullable=False),
        sa.Column("spot", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("covered_s", sa.Integer(), nullable=True),
        sa.Column("polls", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "gpu", "spot", "day", name=op.f("pk_poll_day")),
        sqlite_with_rowid=False,
        comment="the polls of a UTC day (days since 1970) that is over, packed: they stay when their rows are deleted; "
        "covered_s: the newest covering one",
    )
    op.create_table(
        "poll_total",
        sa.Column("provider", sa.String(32), nullable=False),
        sa.Column("gpu", sa.String(200), nullable=False),
        sa.Column("spot", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("lane", sa.String(8), nullable=False),
        sa.Column("searches", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("answered_s", sa.Integer(), nullable=True),
        sa.Column("answered_rows", sa.Integer(), nullable=True),
        sa.Column("answered_skipped", sa.Integer(), nullable=True),
        sa.Column("complete_s", sa.Integer(), nullable=True),
        sa.Column("complete_rows", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("provider", "gpu", "spot", "lane", name=op.f("pk_poll_total")),
        comment="searches and their rows since the first one, kept by the recorder; answered: the newest complete or "
        "truncated answer; complete: the newest complete one",
    )
    op.add_column("history_state", sa.Column("packed_to_day", sa.Integer(), nullable=True))
    _comment(_WITH_DAY, _COMMENT)
    connection = op.get_bind()
    totals = list(_totals(connection).values())
    if totals:
        table = sa.table("poll_total", *(sa.column(name) for name in totals[0]))
        connection.execute(sa.insert(table), totals)


def _totals(connection: sa.Connection) -> dict[tuple[Any, ...], dict[str, Any]]:
    lowest, highest = connection.execute(sa.text("SELECT min(id), max(id) FROM poll")).one()
    totals: dict[tuple[Any, ...], dict[str, Any]] = {}
    for first in range(lowest or 0, (-1 if highest is None else highest) + 1, _POLLS_PER_STEP):
        for row in connection.execute(_COUNTS, {"first": first, "after": first + _POLLS_PER_STEP}).mappings():
            total = totals.setdefault(tuple(row[name] for name in _SCOPE), dict(row) | {"searches": 0, "rows": 0})
            for name in ("searches", "rows"):
                total[name] += int(row[name])
            for name in ("answered_s", "complete_s"):
                total[name] = max((at_s for at_s in (total[name], row[name]) if at_s is not None), default=None)
    for total in totals.values():
        for kind, truncated in (("answered", "truncated"), ("complete", "complete")):
            at_s = total[f"{kind}_s"]
            scope = {name: total[name] for name in _SCOPE}
            found = (
                None if at_s is None
                else connection.execute(_ANSWER, {**scope, "at_s": at_s, "truncated": truncated}).one()
            )  # fmt: skip
            total[f"{kind}_rows"] = None if found is None else found[0]
            if kind == "answered":
                total["answered_skipped"] = None if found is None else found[1]
    return totals


def downgrade() -> None:
    _comment(_COMMENT, _WITH_DAY)
    with op.batch_alter_table("history_state") as table:
        table.drop_column("packed_to_day")
    op.drop_table("poll_total")
    op.drop_table("poll_day")


def _comment(new: str, old: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("history_state", new, existing_comment=old)
