"""No admitted intent exceeds a budget, with any order of reservations, runs, ends, price rises and passing days.

Spent and possible costs are computed here again, in exact fractions, from the test's actions and not from the stored
rows. A refusal must be justified, too: the launch would have exceeded a budget.
"""

from __future__ import annotations

import itertools
import tempfile
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gpuwatch.domain.launches.launch import Intent, Launch, LaunchRefusal, LaunchState, PriceSpan, RefusalReason
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.tables import metadata
from tests.builders import NOON, a_match, a_watch, an_offer
from tests.reserving import launch_or_refusal

S = LaunchState
GLOBAL = Budget(max_usd_hour=Decimal(20), max_usd_day=Decimal(32), max_usd_month=Decimal(50), max_instances=4)
OF_ONE = Budget(max_usd_hour=Decimal("8.50"), max_usd_day=Decimal(14), max_usd_month=Decimal(22), max_instances=2)
HOURS = {"one": 3, "two": 8}  # max_runtime
WATCHES = {
    name: a_watch(
        name=name,
        action=Action.LAUNCH,
        max_price_usd_gpu_hour=Decimal(100),
        launch=LaunchSpec(max_active=9, max_total=0, max_runtime_s=hours * 3600.0),
        budget=OF_ONE if name == "one" else Budget(),
    )
    for name, hours in HOURS.items()
}
MONEY = {
    RefusalReason.MAX_INSTANCES,
    RefusalReason.MAX_USD_HOUR,
    RefusalReason.MAX_USD_DAY,
    RefusalReason.MAX_USD_MONTH,
}
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
PROOF = timedelta(minutes=2)  # until an end is proven
DUST = Fraction(1, 1000)  # dollars: each launch's cost is rounded to a micro-dollar
_NAMES = st.sampled_from(sorted(WATCHES))
_LISTED = st.sampled_from([0.5, 1.0, 2.0, 3.0, 3.5])
_WHICH = st.integers(0, 50)


class Reported:
    """The test's view of one launch: its rates in dollars an hour, from given moments on."""

    def __init__(self, watch: str, since: datetime, rate: Fraction) -> None:
        self.watch = watch
        self.bound = rate
        self.rates: list[tuple[datetime, Fraction]] = [(since, rate)]  # its order may be lost: counted from the start
        self.running_at: datetime | None = None
        self.over_at: datetime | None = None
        self.was_made = True

    def spent(self, since: datetime, now: datetime) -> Fraction:
        end = self.over_at or now
        edges = [*[at for at, _ in self.rates[1:]], end]
        total = Fraction(0)
        for (start, rate), stop in zip(self.rates, edges, strict=True):
            seconds = max(0.0, (stop - max(start, since)).total_seconds())
            total += rate * Fraction(round(seconds * 1000), 3_600_000)
        return total if self.was_made else Fraction(0)

    def still(self, now: datetime, window: timedelta) -> Fraction:
        if self.over_at is not None:
            return Fraction(0)
        left = HOURS[self.watch] * HOUR + PROOF
        if self.running_at is not None:
            left = max(PROOF, left - (now - self.running_at))
        return self.bound * Fraction(round(min(left, window).total_seconds() * 1000), 3_600_000)


class Spending(RuleBasedStateMachine):
    """Launches of two watches, one with a budget of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = open_database(f"sqlite:///{self.folder.name}/gpuwatch.db")
        with self.store.write() as connection:
            metadata.create_all(connection)
        self.repository = SqlLaunchRepository(self.store)
        self.now = NOON
        self.ids = ("".join(letters) for letters in itertools.product("abcdefgh", repeat=12))
        self.offers = itertools.count(1)
        self.reported: dict[str, Reported] = {}

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @initialize(hours=st.sampled_from([0, 11, 24 * 9 + 11]))  # at noon, before midnight, before a new month
    def begins(self, hours: int) -> None:
        self.now += hours * HOUR

    def match(self, listed: float) -> Match:
        offer_id = str(next(self.offers))
        offer = an_offer(offer_id=offer_id, machine_id=offer_id, quoted_usd_hour=listed, disk_usd_gb_month=None)
        return a_match(offer)

    # --- events -------------------------------------------------------------------------------------------------------

    @rule(name=_NAMES, listed=_LISTED)
    def reserve(self, name: str, listed: float) -> None:
        watch, launch_id, match = WATCHES[name], next(self.ids), self.match(listed)
        intent = Intent(watch=watch, match=match, launch_id=launch_id, dry_run=False)
        before = dict(self.reported)
        self.reported[launch_id] = Reported(name, self.now, rate_of(listed))
        with self.store.write() as connection:
            got = launch_or_refusal(connection, intent, GLOBAL, self.now)
        self.judge(got, watch)
        if isinstance(got, LaunchRefusal):
            self.reported = before

    @rule(name=_NAMES, listed=_LISTED, minutes=st.sampled_from([45, 200, 500]))
    def one_that_ran(self, name: str, listed: float, minutes: int) -> None:
        """A whole life: spent money must count like possible costs."""
        known = set(self.reported)
        self.reserve(name, listed)
        for launch_id in set(self.reported) - known:
            self.reported[launch_id].running_at = self.now
            self.reported[launch_id].rates = [(self.now, self.reported[launch_id].bound)]
            launch = self.repository.get(launch_id)
            assert launch is not None
            launch = self.repository.transition(
                launch, S.RUNNING, "a test", self.now, instance_id="1", running_at=self.now
            )
            self.now += timedelta(minutes=minutes)
            self.repository.transition(
                launch, S.ENDED, "a test", self.now, ended_at=self.now, end_reason="stopped by the owner"
            )
            self.reported[launch_id].over_at = self.now

    @rule(which=_WHICH, listed=_LISTED)
    def retarget(self, which: int, listed: float) -> None:
        launch = self.one_of(which, S.REQUESTED)
        if launch is None:
            return
        reported, watch = self.reported[launch.launch_id], WATCHES[launch.watch]
        kept = reported.bound, reported.rates
        reported.bound, reported.rates = rate_of(listed), [(reported.rates[0][0], rate_of(listed))]
        got = self.repository.retarget(launch, self.match(listed), watch, GLOBAL, self.now)
        self.judge(got, watch)
        if isinstance(got, LaunchRefusal):
            reported.bound, reported.rates = kept

    @rule(which=_WHICH)
    def run(self, which: int) -> None:
        launch = self.one_of(which, S.REQUESTED)
        if launch is None:
            return
        span = PriceSpan(self.now, launch.listed_microusd_hour, launch.price_microusd_hour)
        self.repository.transition(
            launch, S.RUNNING, "a test", self.now, instance_id="1", running_at=self.now, spans=(span,)
        )
        reported = self.reported[launch.launch_id]
        reported.running_at = self.now
        reported.rates = [(reported.rates[0][0], Fraction(0)), (self.now, reported.bound)]

    @rule(which=_WHICH, factor=st.sampled_from([2, 3]), known=st.booleans())
    def price_rises(self, which: int, factor: int, known: bool) -> None:
        launch = self.one_of(which, S.RUNNING)
        if launch is None:
            return
        reported = self.reported[launch.launch_id]
        reported.bound *= factor
        reported.rates.append((self.now, reported.bound))
        price = round(reported.bound * 1_000_000)
        changes = {"price_microusd_hour": price} if known else {}
        spans = (*launch.spans, PriceSpan(self.now, price, price))
        self.repository.transition(launch, S.RUNNING, "dearer", self.now, spans=spans, **changes)

    @rule(which=_WHICH)
    def stop(self, which: int) -> None:
        launch = self.one_of(which, S.RUNNING)
        if launch is not None:
            self.repository.transition(launch, S.STOPPING, "a test", self.now)

    @rule(which=_WHICH)
    def end(self, which: int) -> None:
        launch = self.one_of(which, S.STOPPING, S.RUNNING)
        if launch is not None:
            self.repository.transition(
                launch, S.ENDED, "a test", self.now, ended_at=self.now, end_reason="stopped by the owner"
            )
            self.reported[launch.launch_id].over_at = self.now

    @rule(which=_WHICH)
    def fail(self, which: int) -> None:
        launch = self.one_of(which, S.REQUESTED, S.UNKNOWN)
        if launch is not None:
            self.repository.transition(
                launch, S.FAILED, "a test", self.now, ended_at=self.now, end_reason="every offer was gone"
            )
            reported = self.reported[launch.launch_id]
            reported.over_at, reported.was_made = self.now, False
            self.now += 2 * HOUR  # after the cooldown of failures

    @rule(which=_WHICH)
    def lose(self, which: int) -> None:
        launch = self.one_of(which, S.REQUESTED)
        if launch is not None:
            self.repository.transition(launch, S.UNKNOWN, "a test", self.now)

    @rule(minutes=st.sampled_from([1, 45, 200, 1500]))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    # --- invariants ---------------------------------------------------------------------------------------------------

    def judge(self, got: Launch | LaunchRefusal, watch: Watch) -> None:
        """`reported` already contains the new launch."""
        over = [*self.over(GLOBAL, list(self.reported.values()))]
        over += self.over(
            watch.budget, [reported for reported in self.reported.values() if reported.watch == watch.name]
        )
        if isinstance(got, Launch):
            assert all(by <= DUST for _, by in over), (got, over)
            return
        assert got.reason in MONEY, got
        assert got.reason in {reason for reason, by in over if by > -DUST}, (got, over)

    def over(self, budget: Budget, mine: list[Reported]) -> list[tuple[RefusalReason, Fraction]]:
        """Return by how many dollars (or instances) each limit would be exceeded."""
        alive = [reported for reported in mine if reported.over_at is None]
        midnight = self.now.replace(hour=0, minute=0, second=0, microsecond=0)
        found = []
        for reason, limit, amount in (
            (RefusalReason.MAX_INSTANCES, budget.max_instances, Fraction(len(alive))),
            (RefusalReason.MAX_USD_HOUR, budget.max_usd_hour, sum((reported.bound for reported in alive), Fraction(0))),
            (RefusalReason.MAX_USD_DAY, budget.max_usd_day, self.bound(mine, midnight, DAY)),
            (RefusalReason.MAX_USD_MONTH, budget.max_usd_month, self.bound(mine, midnight.replace(day=1), 31 * DAY)),
        ):
            if limit is not None:
                found.append((reason, amount - Fraction(limit)))
        return found

    def bound(self, mine: list[Reported], since: datetime, window: timedelta) -> Fraction:
        return sum(
            (reported.spent(since, self.now) + reported.still(self.now, window) for reported in mine), Fraction(0)
        )

    def one_of(self, which: int, *states: LaunchState) -> Launch | None:
        found = [launch for launch in self.repository.alive() if launch.state in states]
        return found[which % len(found)] if found else None


def rate_of(listed: float) -> Fraction:
    """With 20 % commission."""
    return Fraction(str(listed)) * Fraction(12, 10)


TestSpending = Spending.TestCase
TestSpending.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
