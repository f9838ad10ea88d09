"""What the account's balance says about an instance that no list shows: what exists is paid for. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.market.pricing import MICRO

SPAN_S = 900.0  # a balance is not updated every minute; over a shorter time it says nothing
_HALF = 0.5  # of what the instance would have cost
_MEASURED = 10_000  # micro-dollars: less is lost in rounding


class BalanceReading(msgspec.Struct, frozen=True, kw_only=True):
    """One reading.

    Attributes:
        tick_s: a monotonic clock.
        others_microusd_hour: what the listed instances cost, as listed; None: some price is not given.
        listed: their ids and prices; a reading is compared only with one of the same instances.
    """

    tick_s: float
    balance_microusd: int
    others_microusd_hour: int | None
    listed: frozenset[tuple[str, int | None]]


def read_balance(tick_s: float, balance_usd: float, instances: Iterable[Instance]) -> BalanceReading:
    """The balance beside what stands in the list at that moment."""
    listed = frozenset((one.instance_id, _microusd_hour(one)) for one in instances)
    prices = [price for _, price in listed]
    known = [price for price in prices if price is not None]
    return BalanceReading(
        tick_s=tick_s,
        balance_microusd=round(balance_usd * MICRO),
        others_microusd_hour=sum(known) if len(known) == len(prices) else None,
        listed=listed,
    )


def is_unpaid(first: BalanceReading, last: BalanceReading, microusd_hour: int) -> bool | None:
    """Return whether an instance of this listed price is paid for by nobody; None: the balance does not tell.

    With other instances the balance must fall by what those cost, else it is not up to date; without any, it must
    stand still.
    """
    if first.listed != last.listed or last.others_microusd_hour is None or last.tick_s - first.tick_s < SPAN_S:
        return None
    hours = (last.tick_s - first.tick_s) / 3600
    paid, others = first.balance_microusd - last.balance_microusd, last.others_microusd_hour * hours
    its_own = microusd_hour * hours
    if its_own * _HALF < _MEASURED or paid < 0:  # too cheap to be seen; money was paid in
        return None
    if paid > others + its_own * _HALF:
        return False
    return True if paid >= others * _HALF else None


def _microusd_hour(instance: Instance) -> int | None:
    runs = instance.state in {InstanceState.RUNNING, InstanceState.STARTING}
    price = instance.listed_usd_hour if runs else instance.stopped_usd_hour
    return None if price is None else round(price * MICRO)
