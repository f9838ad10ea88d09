"""`new_low`, `drop_by` and `restock` in the settings: an alert needs no price limit, renting does."""

from __future__ import annotations

from typing import Any

import pytest

WATCH = '[[watch]]\nname = "h"\ngpu = "H100"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('new_low = "30d"\n', (2_592_000.0, None, 604_800.0)),
        ('drop_by = "20%"\n', (None, 0.2, 604_800.0)),
        ('drop_by = 0.2\ndrop_over = "3d"\n', (None, 0.2, 259_200.0)),
    ],
)
def test_an_alert_may_stand_without_a_price(loaded: Any, text: str, expected: tuple[float | None, ...]) -> None:
    (watch,) = loaded(WATCH + text).watches
    assert (watch.new_low_s, watch.drop_by, watch.drop_over_s) == expected
    assert watch.unlimited
    assert watch.past is None


def test_a_restock_is_news_at_any_price(loaded: Any) -> None:
    (watch,) = loaded(WATCH + "restock = true\n").watches
    assert (watch.restock, watch.unlimited) == (True, True)


@pytest.mark.parametrize("key", ["usd_per_tflop_hour", "usd_per_gib_hour"])
def test_a_limit_by_speed_or_memory_needs_no_price_to_alert(loaded: Any, key: str) -> None:
    (watch,) = loaded(f"{WATCH}{key} = 0.02\n").watches
    assert watch.unlimited


def test_with_a_price_both_must_hold(loaded: Any) -> None:
    (watch,) = loaded(WATCH + 'max_price = 2.5\nnew_low = "30d"\n').watches
    assert not watch.unlimited


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('new_low = "30d"\naction = "launch"\n', "max_price: required key is missing"),
        ('drop_by = "20%"\naction = "ask"\n', "max_price: required key is missing"),
        ('new_low = "1h"\n', "new_low: expected a duration of at least 1d"),
        ('drop_by = "0%"\n', "drop_by: "),
        ('drop_by = "100%"\n', "drop_by: "),
        ("drop_by = 20\n", "drop_by: expected a percentage"),
        ('max_price = 2\ndrop_over = "3d"\n', "drop_over: expected only with drop_by"),
        ("percentile = 0\n", "percentile: "),
        ("percentile = 100\n", "percentile: "),
        ('percentile = 5\naction = "launch"\n', "max_price: required key is missing"),
        ('max_price = 2\npercentile_over = "3d"\n', "percentile_over: expected only with percentile"),
        ('restock = true\naction = "launch"\n', "max_price: required key is missing"),
        ('restock = true\nhold_for = "5m"\n', "hold_for: cannot be combined with restock"),
        ("restock = false\n", "max_price: required key is missing"),
        (
            "",
            "max_price: required key is missing; expected: USD per GPU-hour, or max_job_cost or new_low or drop_by",
        ),
        ('usd_per_gib_hour = 0.02\naction = "launch"\n', "USD per GPU-hour, or max_job_cost"),
        ("max_price = 2\nany = []\n", "any: expected at least one condition"),
        ('new_low = "30d"\nhold_for = "5m"\n', "hold_for: cannot be combined with new_low"),
    ],
)
def test_what_does_not_make_sense_is_a_fault(faults: Any, text: str, expected: str) -> None:
    assert any(expected in fault for fault in faults(WATCH + text)), faults(WATCH + text)
