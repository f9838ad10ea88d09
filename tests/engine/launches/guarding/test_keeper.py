"""The keeper ends instances past their end, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest

from gpuwatch.domain.launches.instances.obligation import Obligation, disk_kept, reopened_obligation
from gpuwatch.engine.launches.guarding.keeper import AFTER_S, Keeper
from gpuwatch.errors import (
    GpuwatchError,
    KeyRejected,
    OrderError,
    PayloadChanged,
    ProviderError,
    StoreError,
    UsageError,
)
from gpuwatch.ports import Alert, Launcher, Order
from tests.builders import changed
from tests.engine.lying_provider import AskableProvider, LyingProvider
from tests.engine.uow_fakes import NOON

ONE = Obligation(
    launch_id="a" * 12, watch="cheap", provider="vastai", label=f"gpuwatch-{'a' * 12}", gpu="H100 SXM", gpu_count=1,
    price_microusd_hour=2_000_000, ordered_at=NOON, ends_at=NOON + timedelta(hours=1), instance_id="9000",
)  # fmt: skip


class World:
    """A keeper, its file and a marketplace, on one clock."""

    def __init__(self, provider: LyingProvider | None = None) -> None:
        self.provider = provider or LyingProvider()
        self.file: dict[str, Obligation] = {}
        self.closed: dict[str, Obligation] = {}
        self.broken: StoreError | None = None
        self.alone: str | None = "the database does not answer"
        self.reports: list[Alert] = []
        self.no_key: GpuwatchError | None = None
        self.tick_s = 0.0
        self.now = NOON
        self.waiting: list[Callable[[], None]] = []
        self.hangs = False
        self.is_followed = True
        self.is_extended = False  # according to the database
        self.keeper = self.new_keeper()

    def new_keeper(self) -> Keeper:
        """Return the keeper of another process."""
        return Keeper(
            self, self._launcher, self.reports.append, daemon_fault=lambda: self.alone, run=self._run,
            new_id=lambda: "alert", monotonic=lambda: self.tick_s, is_followed=lambda provider: self.is_followed,
            is_extended=lambda one: self.is_extended,
        )  # fmt: skip

    def open_obligations(self) -> Sequence[Obligation]:
        if self.broken:
            raise self.broken
        return tuple(self.file.values())

    def recently_closed(self, since: datetime) -> Sequence[Obligation]:
        return tuple(one for one in self.closed.values() if one.over_at and one.over_at >= since)

    def close(self, obligation: Obligation) -> None:
        del self.file[obligation.launch_id]
        self.closed[obligation.launch_id] = changed(obligation, is_over=True, over_at=self.now, by_keeper=True)

    def reopen(self, obligation: Obligation) -> None:
        del self.closed[obligation.launch_id]
        self.file[obligation.launch_id] = reopened_obligation(obligation)

    def note_disk_kept(self, obligation: Obligation) -> None:
        self.file[obligation.launch_id] = disk_kept(obligation)

    def note_report(self, obligation: Obligation) -> None:
        self.file[obligation.launch_id] = obligation

    def rented(self, **changes: object) -> None:
        """Rent it, and record it in the file."""
        one = changed(ONE, **changes)
        self.file[one.launch_id] = one
        self.provider.create(Order(offer_id="1", label=one.label, image="x", disk_gb=10.0))

    def _launcher(self, one: Obligation) -> Launcher:
        if self.no_key:
            raise self.no_key
        return self.provider

    def _run(self, name: str, work: Callable[[], None]) -> None:
        self.waiting.append(work) if self.hangs else work()

    def late(self, seconds: float = AFTER_S) -> None:
        """Return a time this long after the end."""
        self.pass_s(3600.0 + seconds - self.tick_s)

    def pass_s(self, seconds: float) -> None:
        """Let time pass; the keeper checks every second."""
        for _ in range(int(seconds)):
            self.tick_s += 1.0
            self.now += timedelta(seconds=1)
            self.keeper.check(self.now)


def test_it_leaves_alone_what_the_reconciler_may_still_end_in_time() -> None:
    world = World()
    world.rented()
    world.late(AFTER_S - 1)
    assert world.provider.destroys == []


def test_it_destroys_by_its_id_what_outlived_its_end_within_two_minutes() -> None:
    world = World()
    world.rented()
    world.provider.on_list = [ProviderError("no list")] * 99
    world.late(119.0)
    assert world.provider.alive == {}
    assert [alert.headline for alert in world.reports] == [
        "cheap: its instance outlived its end; the keeper destroyed it"
    ]


def test_it_finds_by_its_label_what_no_answer_named() -> None:
    world = World()
    world.provider.foreign("1", "gpuwatch-" + "b" * 12)
    world.provider.foreign("2", None)
    world.rented(instance_id=None)
    world.late(119.0)
    assert set(world.provider.alive) == {"1", "2"}


def test_an_instance_that_shows_up_late_is_found_by_its_label() -> None:
    world = World()
    world.file[ONE.launch_id] = changed(ONE, instance_id=None)
    world.late(600.0)
    assert world.reports == []
    world.provider.create(Order(offer_id="1", label=ONE.label, image="x", disk_gb=10.0))
    world.pass_s(120.0)
    assert world.provider.alive == {}


def test_a_later_end_counts_as_soon_as_it_is_in_the_file() -> None:
    world = World()
    world.rented()
    world.late(-10.0)
    world.file[ONE.launch_id] = changed(ONE, ends_at=NOON + timedelta(hours=2))
    world.late(600.0)
    assert world.provider.destroys == []


def test_a_later_end_that_the_database_proves_wins() -> None:
    """Another host extended it, and nothing has read its row since."""
    world = World()
    world.rented()
    world.is_extended = True
    world.late(60.0)
    assert world.provider.destroys == []
    world.is_extended = False
    world.pass_s(30.0)
    assert len(world.provider.destroys) == 1


def test_without_a_limit_it_ends_nothing() -> None:
    world = World()
    world.rented(ends_at=None)
    world.late(86400.0)
    assert world.provider.destroys == []


def test_what_can_no_longer_be_read_is_ended_all_the_same() -> None:
    world = World()
    world.rented()
    world.pass_s(1.0)
    world.broken = StoreError("no such disk")
    world.late(119.0)
    assert world.provider.alive == {}


def test_a_clock_that_steps_back_lets_nothing_run_longer() -> None:
    world = World()
    world.rented()
    world.pass_s(1.0)
    world.now -= timedelta(hours=12)
    world.late(119.0)
    assert world.provider.alive == {}


@pytest.mark.parametrize("provider", [LyingProvider, AskableProvider])
def test_it_closes_what_is_gone_for_good(provider: type[LyingProvider]) -> None:
    world = World(provider())
    world.rented()
    world.late(AFTER_S + 60.0)
    assert world.file == {}
    assert len(world.provider.destroys) == 1


@pytest.mark.parametrize("instance_id", ["9000", None])
@pytest.mark.parametrize("provider", [LyingProvider, AskableProvider])
def test_what_was_denied_and_is_there_again_is_ended_within_two_minutes(
    provider: type[LyingProvider], instance_id: str | None
) -> None:
    """List, lookup and destroy denied it for longer than the keeper tried."""
    world = World(provider())
    world.rented(instance_id=instance_id)
    denied = dict(world.provider.alive)
    world.late(AFTER_S + 60.0)
    assert world.file == {}
    world.pass_s(7200.0)
    world.provider.alive.update(denied)
    world.pass_s(120.0)
    assert world.provider.alive == {}
    assert len(world.reports) == 2
    assert world.file == {}


def test_what_the_daemon_closed_is_looked_for_while_that_follows_nothing() -> None:
    """Its owner stopped it, the destroy was denied, and it reappears while a task hangs."""
    provider = AskableProvider()
    world = World(provider)
    world.rented()
    over = changed(world.file.pop(ONE.launch_id), is_over=True, over_at=NOON, is_ending=True, ends_at=NOON)
    world.closed[over.launch_id] = over
    world.pass_s(600.0)
    assert provider.asked == []
    world.is_followed = False
    world.pass_s(120.0)
    assert provider.alive == {}
    assert len(world.reports) == 1


def test_where_its_id_has_no_answer_the_list_closes_it() -> None:
    provider = AskableProvider()
    world = World(provider)
    world.rented()
    provider.on_get = [PayloadChanged("404"), KeyRejected("403")] * 99
    world.late(AFTER_S + 60.0)
    assert (world.file, len(provider.destroys)) == ({}, 1)


def test_after_a_week_it_is_looked_for_no_more() -> None:
    provider = AskableProvider()
    world = World(provider)
    world.rented()
    world.late(AFTER_S + 60.0)
    asked = len(provider.asked)
    world.now += timedelta(days=7)
    world.pass_s(300.0)
    assert len(provider.asked) == asked


def test_what_was_closed_and_cannot_be_asked_for_is_no_alert() -> None:
    provider = AskableProvider()
    world = World(provider)
    world.rented()
    world.late(AFTER_S + 60.0)
    provider.on_get = [ProviderError("down")] * 99
    world.pass_s(3600.0)
    assert len(world.reports) == 1


def test_an_acknowledged_destroy_that_does_nothing_is_sent_again() -> None:
    world = World()
    world.rented()
    world.provider.destroy_lies = True
    world.late(300.0)
    assert len(world.provider.destroys) > 5
    world.provider.destroy_lies = False
    world.pass_s(60.0)
    assert (world.provider.alive, world.file) == ({}, {})
    assert len(world.reports) == 1


def test_a_provider_that_hangs_delays_no_check_and_gets_one_request() -> None:
    world = World()
    world.rented()
    world.hangs = True
    world.late(600.0)
    assert len(world.waiting) == 1


@pytest.mark.parametrize(
    "elsewhere", [{"provider": "runpod"}, {"is_over": True, "over_at": NOON, "by_keeper": True}], ids=str
)
def test_what_hangs_at_another_provider_or_is_looked_for_again_delays_no_end(elsewhere: dict[str, object]) -> None:
    world = World()
    world.hangs = True
    for n in range(9):
        hanging = changed(ONE, launch_id=f"{n:012}", ends_at=NOON, **elsewhere)
        (world.closed if hanging.is_over else world.file)[hanging.launch_id] = hanging
    world.late(-1.0)
    started = len(world.waiting)
    world.rented()
    world.pass_s(AFTER_S + 1)
    assert (started, len(world.waiting)) == (8, 9)


def test_while_the_daemon_works_it_helps_without_a_second_alert() -> None:
    """The reconciler has begun to end it, and reports it through the outbox."""
    world = World()
    world.alone = None
    world.rented(is_ending=True)
    world.late(119.0)
    assert (world.provider.alive, world.reports) == ({}, [])


def test_a_refused_key_is_reported_at_once_and_then_hourly() -> None:
    world = World()
    world.rented()
    world.provider.destroy_error = KeyRejected("vastai: 401")
    world.late(AFTER_S + 5)
    assert [alert.headline for alert in world.reports] == [
        "cheap: its instance outlived its end and cannot be destroyed"
    ]
    world.pass_s(3000.0)
    assert len(world.reports) == 1
    world.pass_s(3600.0)
    assert len(world.reports) == 2


def test_errors_are_reported_once_they_last() -> None:
    world = World()
    world.rented()
    world.provider.destroy_error = OrderError("vastai: 503")
    world.late(AFTER_S + 30)
    assert world.reports == []
    world.pass_s(60.0)
    assert len(world.reports) == 1
    world.provider.destroy_error = None
    world.pass_s(60.0)
    assert world.provider.alive == {}


def test_without_the_key_of_its_account_it_is_left_to_its_owner() -> None:
    world = World()
    world.rented(account="one")
    world.no_key = UsageError("the key is of account two")
    world.late(300.0)
    assert world.provider.destroys == []
    assert len(world.reports) == 1
    assert ("Error", "the key is of account two") in world.reports[0].facts


def test_the_keeper_of_the_next_process_does_not_report_the_same_again() -> None:
    """`gpuwatch keep` is a new process each minute."""
    world = World()
    world.rented()
    world.no_key = UsageError("its key is gone")
    world.late(AFTER_S + 60)
    assert len(world.reports) == 1
    world.keeper = world.new_keeper()
    world.pass_s(3000.0)
    assert len(world.reports) == 1
    world.pass_s(700.0)
    assert len(world.reports) == 2
    world.no_key = None
    world.provider.destroy_lies = True
    world.pass_s(20.0)
    world.keeper = world.new_keeper()
    world.pass_s(60.0)
    assert [alert.headline.partition("; ")[2] for alert in world.reports[2:]] == ["the keeper destroyed it"]
