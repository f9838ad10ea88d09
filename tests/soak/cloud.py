"""A GPU cloud on a virtual clock: several accounts, every lie that clouds were observed to tell, and the truth.

It knows nothing of gpuwatch except the ports. Random numbers come from two sources: one for the world's events, which
are the same under any rules, and one for the answers to single requests.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer, Verification
from gpuwatch.errors import OfferGone, OrderError, OrderRefused, OutcomeUnknown, ProviderDown, RefusalKind
from gpuwatch.ports import Created, Instance, InstanceState, Order
from tests.builders import NOON

NAME = "soakcloud"
SCARCE = "A100 SXM 80GB"  # one machine of it is free at a time
LATE_S = 60.0  # maximum delay of a create or an acknowledged destroy
LAG_S = 30.0  # maximum age of a list, and delay of a new instance in it
STATES = (
    (InstanceState.RUNNING, 0.9), (InstanceState.STARTING, 0.05), (InstanceState.FAILED, 0.03),
    (InstanceState.UNKNOWN, 0.02),
)  # fmt: skip
CREATES = (
    ("ok", 0.60), ("gone", 0.05), ("refused", 0.02), ("made, not starting", 0.05), ("made, answer lost", 0.07),
    ("made, answer lost, label edited", 0.01), ("not made, answer lost", 0.05), ("late", 0.05),
    ("dies before the send", 0.05), ("dies after the send", 0.05),
)  # fmt: skip
LISTS = (
    ("true", 0.62), ("stale", 0.08), ("omits the new", 0.08), ("shuffled", 0.05), ("twice", 0.05), ("empty", 0.06),
    ("down", 0.06),
)  # fmt: skip
DESTROYS = (
    ("works", 0.70), ("fails", 0.12), ("answer lost", 0.10), ("late", 0.08),
)  # fmt: skip


LABEL = "gpuwatch-"


def launch_id_in(label: str | None) -> str:
    """Return the launch's id: the twelve characters after the prefix."""
    return (label or "").removeprefix(LABEL)[:12]


class Died(BaseException):
    """gpuwatch is killed here; no code may catch it."""


def drawn(rng: random.Random, chances: Sequence[tuple[object, float]]) -> object:
    return rng.choices([what for what, _ in chances], [chance for _, chance in chances])[0]


class Rented(msgspec.Struct, kw_only=True):
    """The truth about one instance."""

    account: str
    instance: Instance
    ordered_label: str  # as ordered, whatever an owner changes later
    gpu: str
    spot: bool
    made_s: float
    usd_hour: float
    by: str  # the installation that ordered it
    seen_running_s: float | None = None  # when an answer first showed it as running
    seen_running_at: datetime | None = None  # … by the wall clock
    hidden: bool = False  # neither lists nor lookups show it, and a destroy reports that it is gone
    denied_until_s: float = 0.0  # when it reappears
    is_unknowable: bool = False  # neither a label nor a database knows it: both were lost
    omitted: bool = False  # only lists omit it


class Cloud:
    """Rented instances of all accounts, and offers. `honest` disables the lies."""

    def __init__(self, seed: int, *, has_lookup: bool) -> None:
        self._seed = seed
        self._world, self._rng = random.Random(f"{seed} world"), random.Random(f"{seed} replies")
        self.has_lookup = has_lookup
        self._ids, self._offer_ids = itertools.count(1), itertools.count(1)
        self._coming: list[tuple[float, str, str, Order]] = []
        self._going: list[tuple[float, str]] = []
        self._past: list[tuple[float, dict[str, Instance]]] = []
        self._last_credit_usd = 10_000.0
        self.tick_s = 0.0
        self.stepped = timedelta(0)  # offset of the wall clock
        self.honest = False
        self.is_down = False
        self.died = False  # gpuwatch was killed during a request
        self.offers: list[Offer] = []
        self._ever: dict[str, Offer] = {}
        self._free: list[Offer] = []
        self.rented: dict[str, Rented] = {}
        self.made: list[Rented] = []
        self.orders: Counter[str] = Counter()
        self.ordered_with_another_key: set[str] = set()  # launch ids
        self.lies: Counter[str] = Counter()
        self.journal: list[str] = []
        self.asking = "home"  # the installation that runs now
        self._account_of: dict[str, str] = {}
        self._back_at_s: dict[str, float] = {}  # instances that a destroy did not find → when they are back
        self.first_list_of: set[str] = set()  # installations whose next list is correct: the first listing never lies

    def now(self) -> datetime:
        """The wall clock."""
        return NOON + timedelta(seconds=self.tick_s) + self.stepped

    # --- time ---------------------------------------------------------------------------------------------------------

    def pass_s(self, seconds: float) -> None:
        """Let time pass: requests in flight take effect."""
        self._past = [entry for entry in self._past if entry[0] >= self.tick_s - 2 * LAG_S]
        self._past.append((self.tick_s, {i: one.instance for i, one in self.rented.items() if self._is_shown(one)}))
        self.tick_s += seconds
        for entry in [entry for entry in self._coming if entry[0] <= self.tick_s]:
            self._coming.remove(entry)
            self._make(*entry[1:])
        for instance_id, one in self.rented.items():
            if one.hidden and self.tick_s >= self._back_at_s[instance_id]:
                one.hidden, one.denied_until_s = False, self.tick_s
        for going in [going for going in self._going if going[0] <= self.tick_s]:
            self._going.remove(going)
            if going[1] in self.rented:
                self._gone(going[1])

    def turn(self) -> None:
        """Apply events of instances: they start, fail, are outbid, become more expensive, disappear."""
        for instance_id, one in sorted(self.rented.items()):
            lot, state = self._world.random(), drawn(self._world, STATES)
            if one.instance.state is InstanceState.STARTING:
                self.change(instance_id, state=state, status=str(state))
            elif not self.honest and one.by:
                self._befall(instance_id, one, lot)

    def _befall(self, instance_id: str, one: Rented, lot: float) -> None:
        usd_hour = one.instance.listed_usd_hour
        if lot < 0.01:
            self._gone(instance_id)
            self.note("vanishes", instance_id)
        elif lot < 0.02 and usd_hour is not None:
            self.change(instance_id, listed_usd_hour=usd_hour * 1.3)
            self.note("dearer", instance_id)
        elif lot < 0.04:
            self.change(instance_id, state=InstanceState.STOPPED, status="stopped")
            self.note("outbid" if one.spot else "stopped", instance_id)
        elif lot < 0.05:
            self.change(instance_id, state=InstanceState.EXITED, status="exited")
            self.note("exits", instance_id)
        elif lot < 0.12 and one.instance.state is InstanceState.STOPPED:
            self.change(instance_id, state=InstanceState.RUNNING, status="running")

    def change(self, instance_id: str, **changes: object) -> None:
        one = self.rented[instance_id]
        one.instance = msgspec.structs.replace(one.instance, **changes)

    # --- offers -------------------------------------------------------------------------------------------------------

    def publish(self, gpu: str, usd_hour: float, spot: bool) -> None:
        """Three machines of one model."""
        known = catalog().get(gpu)
        assert known is not None, gpu
        numbers = [str(next(self._offer_ids)) for _ in range(3)]
        self.offers = [
            Offer(
                provider=NAME, offer_id=number, machine_id=number, gpu=gpu, gpu_family=known.family, gpu_wire=gpu,
                gpu_known=True, gpu_count=1, gpu_memory_gib=known.memory_gib, spot=spot,
                min_bid_usd_hour=usd_hour / 2 if spot else None, quoted_usd_hour=usd_hour, quoted_disk_gb=8.0,
                disk_usd_gb_month=0.0, observed_at=NOON, country="US", region="Utah", reliability=0.99,
                verification=Verification.VERIFIED,
            )
            for number in numbers
        ]  # fmt: skip
        self._ever.update((offer.offer_id, offer) for offer in self.offers)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _make(self, account: str, by: str, order: Order, dead: bool = False, label: str | None = None) -> str:
        instance_id = f"{order.offer_id}{self.orders[order.offer_id]:02}"
        offer = self._ever[order.offer_id]
        state = InstanceState.STOPPED if dead else InstanceState.STARTING
        shown = Instance(
            instance_id=instance_id, label=order.label if label is None else label, state=state, status="loading",
            spot=offer.spot, listed_usd_hour=offer.quoted_usd_hour, bid_usd_hour=order.bid_usd_hour,
            machine_id=offer.machine_id, gpu=offer.gpu, gpu_wire=offer.gpu_wire, gpu_count=1,
            gpu_memory_gib=offer.gpu_memory_gib,
        )  # fmt: skip
        one = Rented(
            account=account, instance=shown, ordered_label=order.label, gpu=offer.gpu, spot=offer.spot,
            made_s=self.tick_s, usd_hour=offer.quoted_usd_hour, by=by,
        )  # fmt: skip
        self.rented[instance_id] = one
        self._account_of[instance_id] = account
        self.made.append(one)
        return instance_id

    def create(self, account: str, order: Order) -> Created:
        """Rent, with random faults on the way."""
        self.orders[order.offer_id] += 1
        # orders run in parallel: results must not depend on the order of threads
        rng = random.Random(f"{self._seed} {order.offer_id} {self.orders[order.offer_id]}")
        outcome = "ok" if self.honest else str(drawn(rng, CREATES))
        outcome = "down" if self.is_down else outcome
        self.note(f"create: {outcome}", f"{order.label} offer {order.offer_id} by {self.asking}")
        if outcome == "dies before the send":
            self.died = True
            raise Died
        if outcome == "gone":
            self.offers = [offer for offer in self.offers if offer.offer_id != order.offer_id]
            raise OfferGone("no_such_ask")
        if outcome == "refused":
            raise OrderRefused("no", RefusalKind.OTHER)
        if outcome in {"not made, answer lost", "down"}:
            raise OutcomeUnknown("timeout")
        self.offers = [offer for offer in self.offers if offer.offer_id != order.offer_id]
        if outcome == "late":
            self._coming.append((self.tick_s + rng.uniform(1, LATE_S), account, self.asking, order))
            raise OutcomeUnknown("timeout")
        edited = "mine" if outcome.endswith("label edited") else None
        instance_id = self._make(account, self.asking, order, outcome == "made, not starting", edited)
        if outcome == "dies after the send":
            self.died = True
            raise Died
        if outcome.startswith("made, answer lost"):
            raise OutcomeUnknown("502")
        return Created(instance_id=instance_id, starting=outcome != "made, not starting")

    def listed(self, account: str) -> Sequence[Instance]:
        """Return a list, correct or not."""
        is_true = self.honest or self.asking in self.first_list_of
        lie = "true" if is_true else str(drawn(self._rng, LISTS))
        self.first_list_of.discard(self.asking)
        lie = "down" if self.is_down else lie
        self.note(f"list: {lie}")
        if lie == "down":
            raise ProviderDown("502")
        if lie == "empty":
            return []
        mine = {i: one for i, one in self.of_account(account).items() if self._is_shown(one)}
        rows = [one.instance for one in mine.values() if is_true or not one.omitted]
        if lie == "stale":
            old = [seen for at_s, seen in self._past if at_s >= self.tick_s - LAG_S]
            rows = [one for i, one in old[0].items() if self._account_of.get(i) == account] if old else rows
        elif lie == "omits the new":
            rows = [row for row in rows if mine[row.instance_id].made_s < self.tick_s - LAG_S]
        elif lie == "shuffled":
            rows = self._rng.sample(rows, len(rows))
        elif lie == "twice":
            rows = [*rows, *rows]
        self._shown(rows)
        return rows

    def looked_up(self, account: str, instance_id: str) -> Instance | None:
        """Return one instance; None: gone, or falsely reported as gone."""
        if self.is_down or (not self.honest and self._rng.random() < 0.05):
            raise ProviderDown("502")
        one = self.of_account(account).get(instance_id)
        if one is None or not self._is_shown(one):
            return None
        self._shown([one.instance])
        return one.instance

    def destroy(self, account: str, instance_id: str) -> None:
        """End one. A missing one is no error, as everywhere; a hidden one is reported as missing."""
        how = "works" if self.honest else str(drawn(self._rng, DESTROYS))
        how = "down" if self.is_down else how
        one = self.of_account(account).get(instance_id)
        if one is not None and how != "down" and self._keeps_running(instance_id):
            one.hidden, how = True, "answered 404, comes back"
        self.note(f"destroy: {how}", instance_id)
        if how in {"fails", "down"}:
            raise OrderError("500")
        if one is None or not self._is_shown(one):
            return
        if how == "late":
            self._going.append((self.tick_s + self._rng.uniform(1, LATE_S / 2), instance_id))
            return
        self._gone(instance_id)
        if how == "answer lost":
            raise OutcomeUnknown("timeout")

    def bid(self, account: str, instance_id: str, bid_usd_hour: float) -> None:
        if instance_id not in self.of_account(account) or (not self.honest and self._rng.random() < 0.2):
            raise OrderError("404")
        self.change(instance_id, bid_usd_hour=bid_usd_hour, state=InstanceState.RUNNING, status="running")

    def _keeps_running(self, instance_id: str) -> bool:
        """One instance in forty answers its first destroy with 404 and is back some minutes later."""
        if self.honest or instance_id in self._back_at_s or self._world.random() > 1 / 40:
            return False
        self._back_at_s[instance_id] = self.tick_s + self._world.uniform(60, 1200)
        return True

    def _shown(self, rows: Sequence[Instance]) -> None:
        for row in rows:
            one = self.rented.get(row.instance_id)
            is_owner = one is not None and one.by == self.asking
            if is_owner and row.state is InstanceState.RUNNING and one.seen_running_s is None:
                one.seen_running_s, one.seen_running_at = self.tick_s, self.now()

    def somebody_rents(self, account: str, label: str | None) -> str:
        """Add an instance that no gpuwatch of this world ordered."""
        instance_id = f"s{next(self._ids)}"
        shown = Instance(instance_id=instance_id, label=label, state=InstanceState.RUNNING, status="running")
        self.rented[instance_id] = Rented(
            account=account, instance=shown, ordered_label=label or "", gpu="", spot=False, made_s=self.tick_s,
            usd_hour=0.0, by="",
        )  # fmt: skip
        self._account_of[instance_id] = account
        return instance_id

    def on_offer(self) -> list[Offer]:
        """Return offers: the last published ones, and machines whose instance is gone."""
        taken = {one.instance.machine_id for one in self.rented.values()}
        free = [one for one in (*self.offers, *self._free) if one.machine_id not in taken]
        # two orders of one round would run in parallel, and the seed would not decide which is first
        scarce = [one for one in free if one.gpu == SCARCE][:1]
        return [*scarce, *(one for one in free if one.gpu != SCARCE)]

    def _gone(self, instance_id: str) -> None:
        machine = self.rented.pop(instance_id).instance.machine_id
        self._free = [
            *self._free[-5:],
            *(offer for offer in self._ever.values() if offer.machine_id == machine),
        ]

    def of_account(self, account: str) -> dict[str, Rented]:
        return {i: one for i, one in sorted(self.rented.items()) if one.account == account}

    def _is_shown(self, one: Rented) -> bool:
        return self.honest or not one.hidden

    def note(self, what: str, of: str = "") -> None:
        """Count an event, and log it in order, for debugging."""
        self.lies[what] += 1
        self.journal.append(f"{self.tick_s:9.1f} {what} {of}")
