"""Evidence from the account balance about an instance that no list shows: an existing instance is paid for. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.market.pricing import MICRO

SPAN_S = 900.0  # balances are not updated every minute; a shorter time proves nothing
_HALF = 0.5  # of the expected cost of the instance
_MEASURED = 10_000  # micro-dollars: smaller amounts are lost in rounding


class BalanceReading(msgspec.Struct, frozen=True, kw_only=True):
    """One balance reading.

    Attributes:
        tick_s: a monotonic clock.
        listed_microusd_hour: the listed price of the listed instances; None: a price is missing.
        listed: their ids and prices; only readings with the same instances are compared.
    """

    tick_s: float
    balance_microusd: int
    listed_microusd_hour: int | None
    listed: frozenset[tuple[str, int | None]]


def read_balance(tick_s: float, balance_usd: float, instances: Iterable[Instance]) -> BalanceReading:
    """Read the balance together with the instances listed at that moment."""
    listed = frozenset((instance.instance_id, _microusd_hour(instance)) for instance in instances)
    prices = [price for _, price in listed]
    known = [price for price in prices if price is not None]
    return BalanceReading(
        tick_s=tick_s,
        balance_microusd=round(balance_usd * MICRO),
        listed_microusd_hour=sum(known) if len(known) == len(prices) else None,
        listed=listed,
    )


def is_unpaid(first: BalanceReading, last: BalanceReading, microusd_hour: int) -> bool | None:
    """Return whether nobody pays for an instance of this listed price; None: the balance does not show it.

    With other instances, the balance must fall by their cost, otherwise it is not up to date. Without any, it must not
    change.
    """
    if first.listed != last.listed or last.listed_microusd_hour is None or last.tick_s - first.tick_s < SPAN_S:
        return None
    hours = (last.tick_s - first.tick_s) / 3600
    paid, others = first.balance_microusd - last.balance_microusd, last.listed_microusd_hour * hours
    its_own = microusd_hour * hours
    if its_own * _HALF < _MEASURED or paid < 0:  # too cheap to be visible, or money was paid in
        return None
    if paid > others + its_own * _HALF:
        return False
    return True if paid >= others * _HALF else None


def _microusd_hour(instance: Instance) -> int | None:
    runs = instance.state in {InstanceState.RUNNING, InstanceState.STARTING}
    price = instance.listed_usd_hour if runs else instance.stopped_usd_hour
    return None if price is None else round(price * MICRO)
