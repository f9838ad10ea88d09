"""The recorded bids of machines."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, bindparam, func, select

from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.market.offer import Identity
from gpuwatch.domain.market.outbid_risk import RecordedBid
from gpuwatch.storage.history.recording.hourly_aggregates import COUNTS_IN_SPAN
from gpuwatch.storage.setup.stored_values import AnyRow
from gpuwatch.storage.setup.tables import poll_total, price_interval, segment, series

_PRICES = (
    select(
        segment.c.provider,
        series.c.machine_id,
        segment.c.gpu,
        segment.c.gpu_count,
        price_interval.c.seen_from_s,
        price_interval.c.seen_to_s,
        price_interval.c.ended_s,
        price_interval.c.machine_microusd_hour,
    )
    .join_from(segment, series, series.c.segment_id == segment.c.id)
    .join(price_interval, price_interval.c.series_id == series.c.id)
    .where(
        segment.c.provider.in_(bindparam("providers", expanding=True)),
        segment.c.gpu.in_(bindparam("gpus", expanding=True)),
        segment.c.spot == 1,
        series.c.machine_id.in_(bindparam("machine_ids", expanding=True)),
        COUNTS_IN_SPAN,
    )
    .order_by(price_interval.c.seen_from_s)
)
_ANSWERED_S = (
    select(poll_total.c.provider, func.max(poll_total.c.answered_s))
    .where(poll_total.c.provider.in_(bindparam("providers", expanding=True)), poll_total.c.spot == 1)
    .group_by(poll_total.c.provider)
)


def recorded_bids(
    connection: Connection, machines: Collection[Identity], since_s: int, until_s: int
) -> dict[Identity, list[RecordedBid]]:
    """Return the prices that spot machines had in [since_s, until_s), without their disks, oldest first; by one query.

    A price counts until the next one, or until it was last seen and at most `COVERAGE_S` longer: until its end was
    noticed nobody knows. One that is current counts until the newest answer of its provider.
    """
    rows_of: dict[Identity, list[AnyRow]] = {machine: [] for machine in machines}
    if not rows_of:
        return {}
    key = {
        "providers": [*{machine.provider for machine in machines}],
        "gpus": [*{machine.gpu for machine in machines}],
        "machine_ids": [*{machine.machine_id for machine in machines}],
    }
    for row in connection.execute(_PRICES, key | {"since_s": since_s, "until_s": until_s}):
        machine = Identity(row.provider, row.machine_id, row.gpu, row.gpu_count, True)
        if machine in rows_of:  # a machine sells several counts, and not all were asked for
            rows_of[machine].append(row)
    answered_s: dict[str, int] = {name: at_s or 0 for name, at_s in connection.execute(_ANSWERED_S, key)}
    return {
        machine: _bids(rows, answered_s.get(machine.provider, 0), until_s) for machine, rows in rows_of.items() if rows
    }


def _bids(rows: list[AnyRow], answered_s: int, until_s: int) -> list[RecordedBid]:
    begins = [row.seen_from_s for row in rows[1:]]
    return [
        RecordedBid(
            row.seen_from_s,
            max(row.seen_from_s, min(until_s, _counts_to(row.seen_to_s, row.ended_s, answered_s))),
            row.machine_microusd_hour,
            None if row.ended_s is None or row.ended_s == next_s else row.ended_s,
        )
        for row, next_s in zip(rows, [*begins, None], strict=False)
    ]


def _counts_to(seen_s: int | None, ended_s: int | None, answered_s: int) -> int:
    if seen_s is None:
        return answered_s
    return seen_s if ended_s is None else min(ended_s, seen_s + COVERAGE_S)
