"""A marketplace for the launch model: observed behaviour of marketplaces, on a clock that the test advances.

A create takes effect up to a minute late, a list lags half a minute, is empty or fails. An acknowledged end is real.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import date

from gpuwatch.errors import OfferGone, OrderError, OrderRefused, OutcomeUnknown, ProviderDown, RefusalKind
from gpuwatch.ports import Created, Instance, InstanceState, Order, PriceIncrease, ProviderCharge

LATE_S = 60.0
LAG_S = 30.0


class Died(BaseException):
    """The process is killed here; no code may catch it."""


class LyingMarketplace:
    """Rents, lists and ends; lies when the test says so; records the truth."""

    name = "vastai"

    def __init__(self) -> None:
        self.tick_s = 0.0
        self.alive: dict[str, Instance] = {}
        self.made: list[str] = []  # labels
        self.coming: list[tuple[float, Order]] = []
        self.past: list[tuple[float, list[Instance]]] = []
        self.outcome = "ok"
        self.listing = "true"
        self.destroying = "works"
        self._ids = itertools.count(100)

    def pass_s(self, seconds: float) -> None:
        self.past.append((self.tick_s, list(self.alive.values())))
        self.tick_s += seconds
        for entry in [entry for entry in self.coming if entry[0] <= self.tick_s]:
            self.coming.remove(entry)
            self._make(entry[1])

    def create(self, order: Order) -> Created:
        outcome = self.outcome
        if outcome == "dies before the send":
            raise Died
        if outcome == "gone":
            raise OfferGone("no_such_ask")
        if outcome == "refused":
            raise OrderRefused("no", RefusalKind.OTHER)
        if outcome == "not made, answer lost":
            raise OutcomeUnknown("timeout")
        if outcome == "late":
            self.coming.append((self.tick_s + LATE_S, order))
            raise OutcomeUnknown("timeout")
        instance_id = self._make(order)
        if outcome == "dies after the send":
            raise Died
        if outcome == "made, answer lost":
            raise OutcomeUnknown("timeout")
        return Created(instance_id=instance_id, starting=outcome == "ok")

    def _make(self, order: Order) -> str:
        instance_id = str(next(self._ids))
        self.made.append(order.label)
        state = InstanceState.STARTING
        self.alive[instance_id] = Instance(
            instance_id=instance_id, label=order.label, state=state, status="loading", spot=False
        )
        return instance_id

    def list_instances(self) -> Sequence[Instance]:
        if self.listing == "down":
            raise ProviderDown("502")
        if self.listing == "empty":
            return []
        if self.listing == "stale":
            old = [seen for at_s, seen in self.past if at_s >= self.tick_s - LAG_S]
            return old[0] if old else list(self.alive.values())
        return list(self.alive.values())

    def destroy(self, instance_id: str) -> None:
        if self.destroying == "fails":
            raise OrderError("500")
        self.alive.pop(instance_id, None)
        if self.destroying == "answer lost":
            raise OutcomeUnknown("timeout")

    def credit_usd(self) -> float | None:
        return None

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        raise OrderError("this marketplace knows no bids")

    def price_increases(self) -> Sequence[PriceIncrease]:
        return []

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        raise OrderError("this marketplace knows no price increases")

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        return None
