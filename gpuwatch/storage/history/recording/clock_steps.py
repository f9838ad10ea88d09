"""A clock that was wrong and stepped back: the history must not contain entries from its future."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, and_, delete, distinct, func, select, update

from gpuwatch.domain.history.hourly_rollup import HOUR_S
from gpuwatch.errors import StoreError
from gpuwatch.storage.market.open_prices import OpenPrices
from gpuwatch.storage.setup.tables import history_state, hourly, poll, price_interval, segment, series

_SMALL_STEP_S = 120  # after a smaller step back of the clock, recording waits
# A larger step is accepted, but only if little was written "later": a computer without a battery starts in 1970, and
# must not move months of history back to that year.
_MOVABLE_HOURS = 48


def clock_stepped_back(prices: OpenPrices, provider: str, at_s: int) -> bool:
    """Whether the database contains entries from this clock's future."""
    return prices.newest_change_s(provider) > at_s + _SMALL_STEP_S


def step_back(connection: Connection, provider: str, at_s: int) -> None:
    """Handle a clock that was wrong and is now at `at_s`: move later entries to this moment.

    Raises:
        StoreError: too much was written later, so this clock must be the wrong one.
    """
    is_later = and_(poll.c.provider == provider, poll.c.at_s > at_s)
    poll_hour = poll.c.at_s // HOUR_S
    hours, newest_hour = connection.execute(
        select(func.count(distinct(poll_hour)), func.max(poll_hour)).where(is_later)
    ).one()
    if hours > _MOVABLE_HOURS:
        newest = datetime.fromtimestamp(newest_hour * HOUR_S, UTC)
        raise StoreError(
            f"the clock is or was wrong: the history reaches to {newest:%Y-%m-%d %H}:00 UTC; set the clock"
        )
    connection.execute(update(poll).where(is_later).values(at_s=at_s))
    _move_intervals(connection, provider, at_s)
    hour = at_s // HOUR_S
    connection.execute(delete(hourly).where(hourly.c.hour >= hour))
    connection.execute(update(history_state).where(history_state.c.next_hour > hour).values(next_hour=hour))
    # other processes must reload
    connection.execute(update(history_state).values(version=history_state.c.version + 1))


def _move_intervals(connection: Connection, provider: str, at_s: int) -> None:
    """Of what each machine cost from then on, keep the newest price if it is open, as one that began at that moment."""
    from_s, to_s = price_interval.c.seen_from_s, price_interval.c.seen_to_s
    own_series = (
        select(series.c.id).join(segment, segment.c.id == series.c.segment_id).where(segment.c.provider == provider)
    )
    is_own = price_interval.c.series_id.in_(own_series)
    newer = price_interval.alias()
    has_newer = (
        select(newer.c.series_id)
        .where(newer.c.series_id == price_interval.c.series_id, newer.c.seen_from_s > from_s)
        .exists()
    )
    connection.execute(delete(price_interval).where(is_own, from_s >= at_s, has_newer))
    connection.execute(delete(price_interval).where(is_own, from_s >= at_s, to_s.is_not(None)))
    connection.execute(update(price_interval).where(is_own, from_s > at_s).values(seen_from_s=at_s))
    connection.execute(update(price_interval).where(is_own, to_s >= at_s).values(seen_to_s=at_s - 1))
