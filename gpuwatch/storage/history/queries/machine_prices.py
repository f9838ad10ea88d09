"""The recorded prices of one machine."""

from __future__ import annotations

from sqlalchemy import and_, bindparam, func, select

from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.market.offer import Identity
from gpuwatch.domain.market.outbid_risk import RecordedBid
from gpuwatch.storage.history.recording.hourly_aggregates import COUNTS_IN_SPAN
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import poll_total, price_interval, segment, series

_PRICES = (
    select(
        price_interval.c.seen_from_s,
        price_interval.c.seen_to_s,
        price_interval.c.ended_s,
        price_interval.c.machine_microusd_hour,
    )
    .join_from(segment, series, series.c.segment_id == segment.c.id)
    .join(price_interval, price_interval.c.series_id == series.c.id)
    .where(
        segment.c.provider == bindparam("provider"),
        segment.c.gpu == bindparam("gpu"),
        segment.c.gpu_count == bindparam("gpu_count"),
        segment.c.spot == bindparam("spot"),
        series.c.machine_id == bindparam("machine_id"),
        COUNTS_IN_SPAN,
    )
    .order_by(price_interval.c.seen_from_s)
)
_ANSWERED_S = select(func.max(poll_total.c.answered_s)).where(
    and_(poll_total.c.provider == bindparam("provider"), poll_total.c.spot == bindparam("spot"))
)


def machine_prices(database: Database, machine: Identity, since_s: int, until_s: int) -> list[RecordedBid]:
    """Return the prices that a machine had in [since_s, until_s), without its disk, oldest first. Raises StoreError.

    A price counts until the next one, or until it was last seen and at most `COVERAGE_S` longer: until its end was
    noticed nobody knows. One that is current counts until the newest answer of its provider.
    """
    key = {
        "provider": machine.provider, "gpu": machine.gpu, "gpu_count": machine.gpu_count, "spot": int(machine.spot),
        "machine_id": machine.machine_id,
    }  # fmt: skip
    with database.read() as connection:
        rows = connection.execute(_PRICES, key | {"since_s": since_s, "until_s": until_s}).all()
        answered_s = connection.execute(_ANSWERED_S, key).scalar() or 0
    begins = [row.seen_from_s for row in rows[1:]]
    return [
        RecordedBid(
            from_s,
            max(from_s, min(until_s, _counts_to(seen_s, ended_s, answered_s))),
            microusd,
            None if ended_s is None or ended_s == next_s else ended_s,
        )
        for (from_s, seen_s, ended_s, microusd), next_s in zip(rows, [*begins, None], strict=False)
    ]


def _counts_to(seen_s: int | None, ended_s: int | None, answered_s: int) -> int:
    if seen_s is None:
        return answered_s
    return seen_s if ended_s is None else min(ended_s, seen_s + COVERAGE_S)
