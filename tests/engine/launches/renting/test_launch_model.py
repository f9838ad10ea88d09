"""Lost and late answers, stale and empty lists, dying processes and clock jumps, in any order, break no promise.

The table is compared with the provider's own books.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import select

from gpuwatch.domain.launches.instance import LABEL_PREFIX, launch_id_in
from gpuwatch.domain.launches.launch import EndReason, Intent, Launch, LaunchState
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.launch_reconciler import LaunchReconciler
from gpuwatch.engine.launches.renting.candidate_loop import ProviderContext
from gpuwatch.engine.launches.renting.launch_executor import LaunchExecutor
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.ports import Instance, InstanceState
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.side_tables import alert
from gpuwatch.storage.setup.tables import metadata
from tests.builders import NOON, a_match, a_watch, an_offer, changed
from tests.engine.launch_world import AnyAccount
from tests.engine.launches.renting.lying_marketplace import LATE_S, Died, LyingMarketplace
from tests.engine.uow_fakes import ScriptedMarket, an_answer
from tests.reserving import launch_or_refusal

BUDGET = Budget(max_usd_hour=Decimal(10), max_instances=3)  # three of 3.60 do not fit
WATCHES = {
    name: a_watch(
        name=name,
        action=Action.LAUNCH,
        launch=LaunchSpec(
            max_active=active, max_total=total, max_runtime_s=7200.0, ready_within_s=900.0, quote_ttl_s=1e9
        ),
    )
    for name, active, total in (("one", 1, 1), ("two", 2, 8))
}
CLEAR = ["ok", "ok", "gone", "refused", "made, not starting"]
LOST = ["made, answer lost", "not made, answer lost", "late", "late", "dies before the send", "dies after the send"]
_EVERY_S = st.sampled_from([5.0, 30.0, 300.0])
_NAMES = st.sampled_from(sorted(WATCHES))


class Renting(RuleBasedStateMachine):
    """gpuwatch with that marketplace."""

    @initialize(foreign_instance=st.booleans())
    def begin(self, foreign_instance: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.store = open_database(f"sqlite:///{self.folder.name}/launches.db")
        metadata.create_all(self.store.engine)
        self.repository = SqlLaunchRepository(self.store)
        self.place = LyingMarketplace()
        self.now: datetime = NOON
        self.offers = itertools.count(1)
        self.ids = (f"{'a' * 8}{''.join(letters)}" for letters in itertools.product("bcdefghijk", repeat=4))
        self.orphans: set[str] = set()
        self.watches = dict(WATCHES)
        if foreign_instance:
            self.place.alive["1"] = Instance(instance_id="1", label=None, state=InstanceState.RUNNING, status="running")
        self.restart()

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self._comes_to_rest()
        finally:
            self.store.close()
            self.folder.cleanup()

    def _comes_to_rest(self) -> None:
        """Once the provider is honest again, everything is found, or held, and ends are real."""
        self.place.destroying = "works"
        self.look("true", 10, 300.0)
        for _ in range(3):  # an instance that just reached its max_runtime needs three more lists
            if all(launch.state is not LaunchState.STOPPING for launch in self.repository.alive()):
                break
            self.look("true", 4, 5.0)
        launches = self.repository.alive()
        assert {launch.state for launch in launches} <= {LaunchState.RUNNING, LaunchState.HELD}
        found = {launch.instance_id for launch in launches if launch.state is LaunchState.RUNNING}
        assert {
            instance_id for instance_id, instance in self.place.alive.items() if self._launch(instance.label)
        } <= found

    @rule()
    def restart(self) -> None:
        """The process is killed and started again, with empty memory."""
        launch_alerts = LaunchAlerts(lambda: next(self.ids))
        context = ProviderContext(self.place, ScriptedMarket(an_answer()), Commission("0.20"))
        slots = LaunchSlots()
        contexts = {"vastai": context}
        self.executor = LaunchExecutor(self.repository, contexts, launch_alerts, lambda: self.now, BUDGET, slots)
        self.follower = LaunchReconciler(
            self.repository,
            self.place,
            launch_alerts,
            watches=self.watches,
            in_flight=slots.in_flight,
            monotonic=lambda: self.place.tick_s,
            owner=AnyAccount(),  # type: ignore[arg-type]
        )

    @rule(name=_NAMES, outcome=st.sampled_from(CLEAR), listed=st.sampled_from([1.0, 3.0]))
    def fire_and_hear(self, name: str, outcome: str, listed: float) -> None:
        """A watch fires, and the provider answers."""
        self.fire(name, outcome, listed)

    @rule(name=_NAMES, outcome=st.sampled_from(LOST), listed=st.sampled_from([1.0, 3.0]))
    def fire_and_not_know(self, name: str, outcome: str, listed: float) -> None:
        """A watch fires, and the outcome is unknown."""
        self.fire(name, outcome, listed)

    def fire(self, name: str, outcome: str, listed: float) -> None:
        """The daemon rents only after a listing."""
        if not self.follower.reconciled:
            return
        offers = [
            an_offer(offer_id=str(n), machine_id=str(n), quoted_usd_hour=listed, observed_at=self.now)
            for n in itertools.islice(self.offers, 2)
        ]
        matches = tuple(a_match(offer) for offer in offers)
        watch = self.watches[name]
        alive = [launch for launch in self.repository.alive() if launch.watch == name]
        intent = Intent(watch=watch, match=matches[0], launch_id=next(self.ids), dry_run=False)
        with self.store.write() as connection:
            launch = launch_or_refusal(connection, intent, BUDGET, self.now)
        if isinstance(launch, Launch):
            assert len(alive) < _spec(watch).max_active
            self.place.outcome = outcome
            try:
                self.executor.execute(launch, watch, matches)
            except Died:
                self.restart()

    @rule(name=_NAMES, every_s=st.sampled_from([1.0, 5.0]))
    def fire_late_and_look_in_haste(self, name: str, every_s: float) -> None:
        """The list is correct, but the instance is not in it yet: early proof of absence would rent a second one."""
        self.fire(name, "late", 1.0)
        self.look("true", 4, every_s)
        self.fire(name, "ok", 1.0)
        self.wait(LATE_S)

    @rule(active=st.sampled_from([1, 2, 3]))
    def the_owner_wants_fewer_or_more(self, active: int) -> None:
        """`max_active` changes while instances run."""
        two = self.watches["two"]
        self.watches["two"] = changed(two, launch=changed(two.launch, max_active=active))

    @rule()
    def a_low_slot_is_freed_and_fewer_are_wanted(self) -> None:
        """A free slot is not enough to rent: the wanted number may be active in removed slots."""
        for _ in range(2):
            self.fire("two", "ok", 1.0)
        self.instances_turn(InstanceState.RUNNING)
        self.look("true", 1, 5.0)
        ours = [launch for launch in self.repository.alive() if launch.watch == "two"]
        lowest = min(ours, key=lambda launch: launch.slot, default=None)
        if lowest is not None and lowest.state is LaunchState.RUNNING:
            reason = EndReason.STOPPED.text()
            self.repository.transition(lowest, LaunchState.STOPPING, reason, self.now, end_reason=reason)
            self.look("true", 5, 5.0)
        self.the_owner_wants_fewer_or_more(1)
        self.fire("two", "ok", 1.0)

    @rule(times=st.integers(1, 6), every_s=_EVERY_S)
    def look_well(self, times: int, every_s: float) -> None:
        """The list is correct."""
        self.look("true", times, every_s)
        self.every_labelled_instance_is_known_or_reported()

    @rule(listing=st.sampled_from(["stale", "empty", "empty", "down"]), times=st.integers(1, 6), every_s=_EVERY_S)
    def look(self, listing: str, times: int, every_s: float) -> None:
        """The list is arbitrary."""
        self.place.listing = listing
        for _ in range(times):
            self.wait(every_s)
            self.follower.reconcile(self.now)
        with self.store.read() as connection:
            reported = connection.execute(select(alert.c.body).where(alert.c.kind == "orphan")).scalars().all()
        self.orphans = {dict(msgspec.json.decode(body)["facts"])["Instance"] for body in reported}

    @rule(seconds=st.sampled_from([20.0, 90.0, 700.0, 3600.0]))
    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.place.pass_s(seconds)

    @rule(hours=st.sampled_from([-1, 1]))
    def clock_jumps(self, hours: int) -> None:
        self.now += timedelta(hours=hours)

    @rule(how=st.sampled_from(["works", "works", "fails", "answer lost"]))
    def destroys_go(self, how: str) -> None:
        self.place.destroying = how

    @rule(state=st.sampled_from([InstanceState.RUNNING, InstanceState.RUNNING, InstanceState.UNKNOWN]))
    def instances_turn(self, state: InstanceState) -> None:
        for instance_id, instance in self.place.alive.items():
            self.place.alive[instance_id] = changed(instance, state=state, status=state.value)

    @rule(letter=st.sampled_from("wxyz"))
    def somebody_else_uses_our_label(self, letter: str) -> None:
        """Another gpuwatch on the same account, or a lost database."""
        label = LABEL_PREFIX + letter * 12
        self.place.alive[letter] = Instance(
            instance_id=letter, label=label, state=InstanceState.RUNNING, status="running"
        )

    @rule(which=st.integers(0, 5))
    def one_is_preempted(self, which: int) -> None:
        ours = sorted(i for i, instance in self.place.alive.items() if instance.label)
        if ours:
            self.place.alive.pop(ours[which % len(ours)])

    @rule(which=st.integers(0, 5))
    def the_owner_stops_one(self, which: int) -> None:
        alive = self.repository.alive()
        if alive and (launch := alive[which % len(alive)]).state is not LaunchState.STOPPING:
            reason = EndReason.STOPPED.text()
            self.repository.transition(launch, LaunchState.STOPPING, reason, self.now, end_reason=reason)

    @rule()
    def the_owner_resolves_what_is_held(self) -> None:
        """After a correct listing, an hour later: no request is in flight any more."""
        held = [launch for launch in self.repository.alive() if launch.state is LaunchState.HELD]
        if not held:
            return
        self.wait(3600.0)
        for launch in held:
            found = [i for i, instance in self.place.alive.items() if instance.label == launch.label]
            if found:
                self.repository.transition(launch, LaunchState.STARTING, "adopted", self.now, instance_id=found[0])
            else:
                reason = EndReason.RESOLVED_ABSENT.text()
                self.repository.transition(
                    launch, LaunchState.FAILED, reason, self.now, ended_at=self.now, end_reason=reason
                )

    # --- the promises -------------------------------------------------------------------------------------------------

    @invariant()
    def the_promises_hold(self) -> None:
        """One read of the table checks all promises: a read per label took most of this model's time."""
        rows = {launch.launch_id: launch for launch in self.repository.all()}
        self.one_create_a_launch()
        self.never_more_alive_than_max_active(rows)
        self.never_more_rented_than_max_total(rows)
        self.the_budget_holds_what_may_be_billed(rows)
        self.what_is_billed_is_reserved(rows)

    def one_create_a_launch(self) -> None:
        assert len(self.place.made) == len(set(self.place.made))

    def never_more_alive_than_max_active(self, rows: Mapping[str, Launch]) -> None:
        alive = [_of_label(rows, instance.label) for instance in self.place.alive.values()]
        for name, most in (("one", 1), ("two", 3)):  # the highest value that an owner sets here
            assert sum(launch is not None and launch.watch == name for launch in alive) <= most

    def never_more_rented_than_max_total(self, rows: Mapping[str, Launch]) -> None:
        """A launch that never ran and is gone is not rented again (docs/safety.md)."""
        made = [_of_label(rows, label) for label in self.place.made]
        counted = [launch.watch for launch in made if launch is not None and launch.counts]
        for name, watch in WATCHES.items():
            assert counted.count(name) <= _spec(watch).max_total

    def the_budget_holds_what_may_be_billed(self, rows: Mapping[str, Launch]) -> None:
        alive = [launch for launch in rows.values() if not launch.is_over]
        assert sum(launch.price_microusd_hour for launch in alive) <= 10_000_000
        assert len(alive) <= 3

    def what_is_billed_is_reserved(self, rows: Mapping[str, Launch]) -> None:
        """No instance of ours is active after its launch, except reported ones."""
        for instance in self.place.alive.values():
            launch = _of_label(rows, instance.label)
            assert launch is None or not launch.is_over or instance.instance_id in self.orphans

    def every_labelled_instance_is_known_or_reported(self) -> None:
        for instance in self.place.alive.values():
            launch = self._launch(instance.label)
            if instance.label and (launch is None or launch.is_over):
                assert instance.instance_id in self.orphans

    def _launch(self, label: str | None) -> Launch | None:
        launch_id = launch_id_in(label)
        return None if launch_id is None else self.repository.get(launch_id)


def _of_label(rows: Mapping[str, Launch], label: str | None) -> Launch | None:
    launch_id = launch_id_in(label)
    return None if launch_id is None else rows.get(launch_id)


def _spec(watch: Watch) -> LaunchSpec:
    assert watch.launch is not None
    return watch.launch


TestRenting = Renting.TestCase
TestRenting.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
# a time-out inside an example would be reported as flaky, and hide its cause
TestRenting.pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
