"""The thresholds of a sweep: both ends, in exact steps."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gpuwatch.domain.forecasts.backtest.replay_result import parse_sweep


def test_both_ends_are_included_and_steps_are_exact() -> None:
    assert parse_sweep("max_price=2.0:2.4:0.1") == tuple(map(Decimal, ("2.0", "2.1", "2.2", "2.3", "2.4")))
    assert parse_sweep(" max_price =0.5:1.2:0.5") == (Decimal("0.5"), Decimal("1.0"))
    assert parse_sweep("max_price=1000000:1000000:1") == (Decimal(1_000_000),)


@pytest.mark.parametrize(
    "text",
    [
        "", "max_price=1:2", "gpu=1:2:1", "max_price=1:inf:1", "max_price=nan:2:1", "max_price=0:2:1",
        "max_price=2:1:1", "max_price=1:2:0", "max_price=1:1000001:1000000", "max_price=a:b:c",
    ],
)  # fmt: skip
def test_what_is_no_sweep_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected max_price=FROM:TO:STEP"):
        parse_sweep(text)


def test_at_most_two_hundred_steps() -> None:
    assert len(parse_sweep("max_price=0.01:2:0.01")) == 200
    with pytest.raises(ValueError, match="201 steps"):
        parse_sweep("max_price=0.01:2.01:0.01")
