"""A marketplace on a virtual clock that lies in every way marketplaces were seen to, and keeps the truth apart."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from datetime import date

import msgspec

from gpuwatch.errors import OfferGone, OrderError, OrderRefused, OutcomeUnknown, ProviderDown, RefusalKind
from gpuwatch.ports import Created, Instance, InstanceState, Order, PriceIncrease, ProviderCharge

LATE_S = 60.0  # so late a create, or an acknowledged destroy, may take effect
LAG_S = 30.0  # so old a list may be, and so long a new instance may be missing from it
STATES = (
    (InstanceState.RUNNING, 0.9), (InstanceState.STARTING, 0.05), (InstanceState.FAILED, 0.03),
    (InstanceState.UNKNOWN, 0.02),
)  # fmt: skip
CREATES = (
    ("ok", 0.60), ("gone", 0.05), ("refused", 0.02), ("made, not starting", 0.05), ("made, answer lost", 0.08),
    ("not made, answer lost", 0.05), ("late", 0.05), ("dies before the send", 0.05), ("dies after the send", 0.05),
)  # fmt: skip
LISTS = (
    ("true", 0.62), ("stale", 0.08), ("omits the new", 0.08), ("shuffled", 0.05), ("twice", 0.05), ("empty", 0.06),
    ("down", 0.06),
)  # fmt: skip
DESTROYS = (
    ("works", 0.70), ("fails", 0.12), ("answer lost", 0.10), ("late", 0.08),
)  # fmt: skip


class Died(BaseException):
    """gpuwatch is killed here; nothing may catch it."""


def drawn(rng: random.Random, chances: Sequence[tuple[object, float]]) -> object:
    return rng.choices([what for what, _ in chances], [chance for _, chance in chances])[0]


class LyingMarket:
    """Rents, lists, ends. `honest` switches the lies off.

    Args:
        prices: offer id → listed USD per hour, as offers are made up by who asks.
    """

    name = "vastai"

    def __init__(self, rng: random.Random, prices: dict[str, float]) -> None:
        self._rng = rng
        self._prices = prices
        self._ids = itertools.count(100)
        self._coming: list[tuple[float, Order]] = []
        self._going: list[tuple[float, str]] = []
        self._past: list[tuple[float, list[Instance]]] = []
        self._born_s: dict[str, float] = {}
        self.tick_s = 0.0
        self.honest = False
        self.alive: dict[str, Instance] = {}
        self.made: list[str] = []  # labels, one for each instance that was ever made
        self.rented_usd: dict[str, float] = {}  # instance → USD per hour as it was rented
        self.lies: dict[str, int] = {}

    def pass_s(self, seconds: float) -> None:
        """Time goes by: what is under way arrives."""
        self._past = [entry for entry in self._past if entry[0] >= self.tick_s - 2 * LAG_S]
        self._past.append((self.tick_s, list(self.alive.values())))
        self.tick_s += seconds
        for entry in [entry for entry in self._coming if entry[0] <= self.tick_s]:
            self._coming.remove(entry)
            self._make(entry[1])
        for going in [going for going in self._going if going[0] <= self.tick_s]:
            self._going.remove(going)
            self.alive.pop(going[1], None)

    def turn(self) -> None:
        """What happens to instances by themselves: they come to life, die, are outbid, get dearer, vanish."""
        for instance_id, one in list(self.alive.items()):
            if one.state is InstanceState.STARTING:
                state = drawn(self._rng, STATES)
                self.alive[instance_id] = _changed(one, state=state, status=str(state))
            elif one.label and not self.honest:
                self._befall(instance_id, one)

    def _befall(self, instance_id: str, one: Instance) -> None:
        lot = self._rng.random()
        if lot < 0.02:
            del self.alive[instance_id]
            self._note("vanishes")
        elif lot < 0.04 and one.listed_usd_hour is not None:
            self.alive[instance_id] = _changed(one, listed_usd_hour=one.listed_usd_hour * 1.5)
            self._note("dearer")
        elif lot < 0.07:
            self.alive[instance_id] = _changed(one, state=InstanceState.STOPPED, status="stopped")
            self._note("outbid" if one.spot else "stopped")
        elif lot < 0.12:
            self.alive[instance_id] = _changed(one, state=InstanceState.RUNNING, status="running")

    # --- the port -----------------------------------------------------------------------------------------------------

    def create(self, order: Order) -> Created:
        outcome = "ok" if self.honest else str(drawn(self._rng, CREATES))
        self._note(f"create: {outcome}")
        if outcome == "dies before the send":
            raise Died
        if outcome == "gone":
            raise OfferGone("no_such_ask")
        if outcome == "refused":
            raise OrderRefused("no", RefusalKind.OTHER)
        if outcome == "not made, answer lost":
            raise OutcomeUnknown("timeout")
        if outcome == "late":
            self._coming.append((self.tick_s + self._rng.uniform(1, LATE_S), order))
            raise OutcomeUnknown("timeout")
        instance_id = self._make(order, dead=outcome == "made, not starting")
        if outcome == "dies after the send":
            raise Died
        if outcome == "made, answer lost":
            raise OutcomeUnknown("502")
        return Created(instance_id=instance_id, starting=outcome != "made, not starting")

    def _make(self, order: Order, dead: bool = False) -> str:
        instance_id, price = str(next(self._ids)), self._prices[order.offer_id]
        self.made.append(order.label)
        self.rented_usd[instance_id] = price
        self._born_s[instance_id] = self.tick_s
        state = InstanceState.STOPPED if dead else InstanceState.STARTING
        self.alive[instance_id] = Instance(
            instance_id=instance_id, label=order.label, state=state, status="loading",
            spot=order.bid_usd_hour is not None, listed_usd_hour=price, bid_usd_hour=order.bid_usd_hour,
        )  # fmt: skip
        return instance_id

    def list_instances(self) -> Sequence[Instance]:
        lie = "true" if self.honest else str(drawn(self._rng, LISTS))
        self._note(f"list: {lie}")
        rows = list(self.alive.values())
        if lie == "down":
            raise ProviderDown("502")
        if lie == "empty":
            return []
        if lie == "stale":
            old = [seen for at_s, seen in self._past if at_s >= self.tick_s - LAG_S]
            return old[0] if old else rows
        if lie == "omits the new":
            return [row for row in rows if self._born_s.get(row.instance_id, -1e9) < self.tick_s - LAG_S]
        if lie == "shuffled":
            return self._rng.sample(rows, len(rows))
        return [*rows, *rows] if lie == "twice" else rows

    def destroy(self, instance_id: str) -> None:
        how = "works" if self.honest else str(drawn(self._rng, DESTROYS))
        self._note(f"destroy: {how}")
        if how == "fails":
            raise OrderError("500")
        if how == "late":
            self._going.append((self.tick_s + self._rng.uniform(1, LATE_S / 2), instance_id))
            return
        self.alive.pop(instance_id, None)
        if how == "answer lost":
            raise OutcomeUnknown("timeout")

    def credit_usd(self) -> float | None:
        return None

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        one = self.alive.get(instance_id)
        if one is None or (not self.honest and self._rng.random() < 0.2):
            raise OrderError("404")
        self.alive[instance_id] = _changed(one, bid_usd_hour=bid_usd_hour, state=InstanceState.RUNNING)

    def price_increases(self) -> Sequence[PriceIncrease]:
        return []

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        raise OrderError("this marketplace announces none")

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        return None

    def _note(self, what: str) -> None:
        self.lies[what] = self.lies.get(what, 0) + 1


def _changed(one: Instance, **changes: object) -> Instance:
    return msgspec.structs.replace(one, **changes)
