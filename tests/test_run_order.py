"""Several workers run every test once, in an order that keeps cores busy and memory small."""

from __future__ import annotations

from itertools import groupby, pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.own_process import place_of
from tests.run_order import SHARED_STARTS, TOGETHER, _module_with_a_fixture, arranged


def _items(count: int, slow: int) -> list[pytest.Item]:
    """Every `slow`-th one is slow."""

    def item(number: int) -> Any:
        marker = "slow" if number % slow == 0 else None
        return SimpleNamespace(
            nodeid=f"tests/domain/test_rule.py::test_{number}",
            get_closest_marker=lambda name: marker if name == marker else None,
        )

    return cast("list[pytest.Item]", [item(number) for number in range(count)])


@pytest.mark.parametrize("count", [0, 1, 2, 5, 7, 50, 301])
@pytest.mark.parametrize("slow", [1, 2, 7, 1000])
@pytest.mark.parametrize("workers", [1, 2, 6])
def test_no_test_is_lost_and_none_is_twice(count: int, slow: int, workers: int) -> None:
    items = _items(count, slow)
    assert sorted(item.nodeid for item in arranged(items, workers)) == sorted(item.nodeid for item in items)


def test_each_part_has_its_share_of_slow_tests_and_none_at_its_end() -> None:
    items = _items(600, 7)
    ordered = arranged(items, 6)
    for begin in range(0, 600, 100):
        slow = [n for n, item in enumerate(ordered[begin : begin + 100]) if item.get_closest_marker("slow")]
        assert 14 <= len(slow) <= 15
        assert slow[-1] < 70
        assert max(b - a for a, b in pairwise(slow)) <= 5


def test_what_shares_a_process_or_a_daemon_is_together_even_if_it_is_slow() -> None:
    """Otherwise the process would start again and again."""
    rows = (TOGETHER[0], TOGETHER[1], SHARED_STARTS[0])
    items: list[Any] = _items(600, 7)
    for number, item in enumerate(items[::15]):
        item.nodeid = f"{rows[number % 3][0]}::test_{number}"
    ordered = [place_of(item, TOGETHER) for item in arranged(items, 6)]
    assert sorted(place for place, _ in groupby(ordered) if place) == sorted(rows)  # each of them once


def test_what_shares_a_fixture_of_its_module_is_together_and_spread_like_slow_tests() -> None:
    """Otherwise a browser, a daemon or a store would start again after each test of another module."""
    items: list[Any] = _items(600, 7)
    once, each = [SimpleNamespace(scope="module")], [SimpleNamespace(scope="function")]
    for number, item in enumerate(items[::15]):
        item.nodeid = f"tests/web/test_{number % 4}.py::test_{number}"
        item._fixtureinfo = SimpleNamespace(name2fixturedefs={"tmp_path": each, "browser": once})
    ordered = [item.nodeid.partition("::")[0] for item in arranged(items, 6)]
    assert sorted(name for name, _ in groupby(ordered) if "web" in name) == [f"tests/web/test_{n}.py" for n in range(4)]
    assert len({ordered.index(f"tests/web/test_{n}.py") // 100 for n in range(4)}) > 1, "in one part"


def test_a_fixture_that_every_module_has_holds_no_tests_together(request: pytest.FixtureRequest) -> None:
    assert _module_with_a_fixture(request.node) is None
