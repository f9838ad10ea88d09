"""The bound of `benchmarks.seen`, on markets whose best schedule is known."""

from __future__ import annotations

import pytest

from benchmarks.best_schedule import BestSchedule, Limits, Served, best_schedule

pytestmark = pytest.mark.slow  # scipy


def watches(*limits_usd: float) -> list[Served]:
    """Watches of a GPU each."""
    return [Served(gpu=f"GPU {number}", limit_usd=usd, weight=1.0) for number, usd in enumerate(limits_usd)]


def best(found: list[Served], prices: dict[str, list[float]], searches_per_s: float, rows: float) -> BestSchedule:
    limits = Limits(searches_per_s=searches_per_s, rows_per_s=rows, poll_every_s=30.0)
    return best_schedule(found, [prices], limits)


def test_one_watch_is_polled_as_often_as_its_owner_wants() -> None:
    found = best(watches(1.0), {}, 1 / 6, 1.0)
    assert found.mean_s == pytest.approx(15.0, rel=0.01)
    assert found.quantile_s(0.5) == pytest.approx(15.0, rel=0.01)
    assert found.quantile_s(0.95) == pytest.approx(28.5, rel=0.01)


def test_without_rows_to_spare_searches_are_shared_evenly() -> None:
    """Joined, each search would return an offer of the cheap GPU, for which there are no rows."""
    prices = {"GPU 0": [1.5], "GPU 1": [2.5], "GPU 2": [3.5], "GPU 3": [4.5]}
    found = best(watches(1.0, 2.0, 3.0, 4.0), prices, 1 / 30, 0.0)
    assert found.mean_s == pytest.approx(60.0, rel=0.01), "four GPUs in turn: each every two minutes"


def test_with_rows_to_spare_one_search_serves_all() -> None:
    prices = {"GPU 0": [1.5], "GPU 1": [2.5]}
    found = best(watches(1.0, 2.0), prices, 1 / 30, 1.0)
    assert found.mean_s == pytest.approx(15.0, rel=0.01)


def test_watches_of_one_gpu_share_its_searches() -> None:
    found = best([*watches(1.0), Served(gpu="GPU 0", limit_usd=0.9, weight=1.0)], {}, 1 / 30, 0.0)
    assert found.mean_s == pytest.approx(15.0, rel=0.01)
