"""The needs of a plan are stated before the first search."""

from __future__ import annotations

import pytest

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.engine.market.polling_plan import PollingPlan, plan_polling
from gpuwatch.ports import ProviderSettings
from tests.builders import a_watch, changed

VASTAI = ProviderSettings(name="vastai", base_url="http://127.0.0.1")  # every 30 s, 6 s between two searches


def plan(
    *watches: Watch, targets: int = 0, sweep_every_s: float = 300.0, provider: ProviderSettings = VASTAI
) -> PollingPlan:
    return plan_polling(provider, watches, Commission(), targets, sweep_every_s)


def several(count: int) -> list[Watch]:
    return [a_watch(name=f"watch-{n}", gpu_names=(f"GPU {n}",)) for n in range(count)]


def test_one_watch_is_polled_as_often_as_it_says() -> None:
    found = plan(*several(1), targets=1)
    assert (found.hunts_a_minute, found.sweeps_a_minute, found.available_a_minute) == (2.0, 0.2, 10.0)
    assert found.seen_within_s == {"watch-0": 30.0}
    assert found.warning is None


@pytest.mark.parametrize(
    ("watches", "targets", "round_s"),
    [(5, 0, 30.0), (5, 5, 30.0 / 0.9), (10, 0, 60.0), (10, 50, 75.0), (20, 20, 150.0), (100, 0, 600.0)],
)
def test_a_round_is_as_long_as_its_queries_and_the_share_of_the_sweep(
    watches: int, targets: int, round_s: float
) -> None:
    found = plan(*several(watches), targets=targets)
    assert found.round_s == pytest.approx(round_s)
    assert set(found.seen_within_s.values()) == {found.round_s}


def test_watches_that_ask_the_same_count_once_and_both_rental_types_twice() -> None:
    twins = [a_watch(name="one"), a_watch(name="two")]
    assert plan(*twins).queries == 1
    assert plan(a_watch(name="both", spot=SpotPolicy.ANY)).queries == 2


def test_hunts_that_do_not_fit_are_a_warning_with_the_figure() -> None:
    assert plan(*several(5), targets=5).warning is None, "a little longer because of the sweep is no fault of the plan"
    warning = plan(*several(6), targets=6).warning
    assert warning is not None
    assert "poll_every = 30 s is too short" in warning
    assert "6 queries, 6 s apart, 41 s per round" in warning
    assert "providers.vastai.poll_every to 41s" in warning


def test_without_an_interval_everything_can_be_kept() -> None:
    free = ProviderSettings(name="gcp", base_url="http://127.0.0.1", search_interval_s=0.0, rows_per_day=0)
    found = plan(*several(100), targets=100, provider=free)
    assert (found.available_a_minute, found.round_s, found.warning) == (None, 30.0, None)


def test_where_no_watch_is_polled_only_the_sweep_asks() -> None:
    found = plan(targets=3)
    assert (found.hunts_a_minute, found.round_s, found.seen_within_s) == (0.0, 0.0, {})
    assert found.sweeps_a_minute == pytest.approx(0.6)


def test_a_quota_that_cannot_keep_the_pace_is_a_warning_with_figures() -> None:
    warning = plan(*several(1), provider=changed(VASTAI, rows_per_day=250)).warning
    assert warning is not None
    assert "rows_per_day = 250 is too few for poll_every = 30 s" in warning
    assert "costs up to 10 rows, and 50 % of the rows are for such polls, so it is polled every 1h55m" in warning
    assert "Set providers.vastai.rows_per_day to 5760 or more" in warning
    several_together = plan(*several(8), provider=changed(VASTAI, rows_per_day=2000, search_interval_s=1.0)).warning
    assert several_together is not None
    assert "each of 8 every 1h55m if all match" in several_together


@pytest.mark.parametrize(("watches", "rows_per_day"), [(8, 20_000), (1, 5760), (40, 0)])
def test_a_quota_that_keeps_the_pace_is_no_warning(watches: int, rows_per_day: int) -> None:
    provider = changed(VASTAI, rows_per_day=rows_per_day, search_interval_s=0.5)
    assert plan(*several(watches), provider=provider).warning is None
