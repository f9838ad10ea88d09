"""`max_price = "auto"` in the settings: its cap and its deadline, and the usable part when stopping launches."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.watches.watch import AutoPrice
from gpuwatch.settings.load import load_for_stopping

WATCH = '[[watch]]\nname = "h"\ngpu = "H100"\n'
AUTO = WATCH + 'max_price = "auto"\n'
CAP = "max_price_cap = 3.50\n"


@pytest.mark.parametrize(
    ("deadline", "expected"),
    [
        ('"2d"', {"deadline_s": 172_800.0}),
        ("2026-12-01T08:00:00Z", {"deadline_at": datetime(2026, 12, 1, 8, tzinfo=UTC)}),
        ('"2026-12-01T09:00:00+01:00"', {"deadline_at": datetime(2026, 12, 1, 8, tzinfo=UTC)}),
    ],
)
def test_the_cap_is_the_most_that_is_paid(loaded: Any, deadline: str, expected: dict[str, Any]) -> None:
    (watch,) = loaded(f"{AUTO}{CAP}deadline = {deadline}\n").watches
    assert watch.auto == AutoPrice(cap_usd_gpu_hour=Decimal("3.50"), **expected)
    assert watch.max_price_usd_gpu_hour == Decimal("3.50")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AUTO + CAP, 'deadline: required with max_price = "auto"'),
        (AUTO + 'deadline = "2d"\n', 'max_price_cap: required with max_price = "auto"'),
        (AUTO + 'max_price_cap = nan\ndeadline = "2d"\n', "max_price_cap: expected a finite number"),
        (AUTO + 'max_price_cap = 0\ndeadline = "2d"\n', "max_price_cap: expected a number above 0"),
        (WATCH + "max_price = 2\n" + CAP, 'max_price_cap: expected only with max_price = "auto"'),
        (WATCH + 'max_price = "Auto"\n', "max_price: expected a number"),
        (WATCH, "max_price: required key is missing"),
        (AUTO + CAP + 'deadline = "soon"\n', "deadline: expected a duration"),
        (AUTO + CAP + "deadline = 2026-12-01\n", "deadline: expected a duration"),
        (AUTO + CAP + "deadline = 2026-12-01T08:00:00\n", "deadline: expected a duration"),
        (AUTO + CAP + "deadline = 9999-12-31T23:59:59-12:00\n", "deadline: expected a duration"),
        (AUTO + CAP + "deadline = 0001-01-01T00:00:00+12:00\n", "deadline: expected a duration"),
    ],
)
def test_what_does_not_make_sense_is_a_fault(faults: Any, text: str, expected: str) -> None:
    assert any(expected in fault for fault in faults(text))


@pytest.mark.parametrize("wrong", ['max_price = "cheap"\n', 'max_price = "auto"\ndeadline = "2d"\n', ""])
def test_without_a_limit_that_makes_sense_nothing_is_left_of_the_watch(home: Path, wrong: str) -> None:
    """A watch without a limit gets the highest one: active launches must not be held to another."""
    (home / "gpuwatch.toml").write_text(WATCH + wrong)
    settings = load_for_stopping(env={}, cwd=home).settings
    assert settings.watches == ()
    assert settings.left_out == {"h": None}


def test_a_budget_that_refuses_every_launch_at_the_cap_names_the_cap(
    loaded: Any, caplog: pytest.LogCaptureFixture
) -> None:
    launch = 'action = "launch"\n[watch.launch]\nmax_runtime = "10h"\n[watch.budget]\nmax_usd_day = 20\n'
    with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
        loaded(f'{AUTO}{CAP}deadline = "2d"\n{launch}')
    assert "max_usd_day = 20 blocks every launch at max_price_cap: 1 GPU × 3.5" in caplog.text
