"""Stores when each price ended; reads the whole history once.

A price ended with the first poll that would have shown it and did not, or with the offer's next price. Of an import
it may be open (NULL): no poll has missed it yet. What gpuwatch closed itself, and no later poll shows it (after a clock
was set back), ended three hours after it was last seen.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_COMMENT = "one price from first seen to last seen; seen_to_s NULL: still current at the newest poll that covers it"
_WITH_END = (
    f"{_COMMENT}; ended_s: the first poll that would have shown it and did not, or the offer's next price; "
    "NULL: neither yet"
)
# One look-up in an index for each of the three possible ends; `{gpu}`: the polls of its GPU, and those of all.
_MISSED_BY = """(
    SELECT p.at_s FROM series s JOIN segment g ON g.id = s.segment_id
    JOIN poll p ON p.covers = 1 AND p.provider = g.provider AND p.gpu = {gpu} AND p.spot = g.spot
    WHERE s.id = price_interval.series_id AND p.at_s > price_interval.seen_to_s
    AND (p.complete_to_microusd IS NULL OR p.complete_to_microusd >= price_interval.machine_microusd_hour)
    ORDER BY p.at_s LIMIT 1
)"""
_NEXT_PRICE = """(
    SELECT n.seen_from_s FROM price_interval n
    WHERE n.series_id = price_interval.series_id AND n.seen_from_s > price_interval.seen_from_s
    ORDER BY n.seen_from_s LIMIT 1
)"""
_NEVER = 2**31 - 1
_EARLIEST = {"sqlite": "min", "postgresql": "least"}
_LASTS_S = 3 * 3600


def upgrade() -> None:
    op.add_column("price_interval", sa.Column("ended_s", sa.Integer(), nullable=True))
    _comment(_WITH_END, _COMMENT)
    ends = ", ".join(
        f"coalesce({end}, {_NEVER})"
        for end in (_MISSED_BY.format(gpu="g.gpu"), _MISSED_BY.format(gpu="''"), _NEXT_PRICE)
    )
    earliest = _EARLIEST[op.get_bind().dialect.name]
    op.execute(f"UPDATE price_interval SET ended_s = nullif({earliest}({ends}), {_NEVER}) WHERE seen_to_s IS NOT NULL")
    op.execute(
        f"UPDATE price_interval SET ended_s = seen_to_s + {_LASTS_S} WHERE seen_to_s IS NOT NULL AND ended_s IS NULL"
        " AND series_id IN (SELECT s.id FROM series s JOIN segment g ON g.id = s.segment_id"
        " WHERE g.provider NOT LIKE '%history')"
    )


def downgrade() -> None:
    _comment(_COMMENT, _WITH_END)
    with op.batch_alter_table("price_interval") as table:
        table.drop_column("ended_s")


def _comment(new: str, old: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_table_comment("price_interval", new, existing_comment=old)
