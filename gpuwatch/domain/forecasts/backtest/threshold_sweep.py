"""Replays one watch at many thresholds: how much longer a lower price takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation

import msgspec

from gpuwatch.domain.forecasts.backtest.replay import ReplaySettings, replay
from gpuwatch.domain.forecasts.backtest.replay_result import BacktestResult, result_of
from gpuwatch.domain.forecasts.backtest.replayed_candidates import BacktestCandidate
from gpuwatch.domain.history.market_history import MarketHistory
from gpuwatch.domain.watches.watch import Watch

SWEPT_SETTING = "max_price"
MAX_STEPS = 200
_EXPECTED = f"expected {SWEPT_SETTING}=FROM:TO:STEP in dollars per GPU-hour, for example {SWEPT_SETTING}=2.0:4.0:0.1"


def parse_sweep(text: str) -> tuple[Decimal, ...]:
    """Parse the thresholds of "max_price=2.0:4.0:0.1", both ends included.

    Raises:
        ValueError: the text is not a range of thresholds; the message states what is expected.
    """
    name, _, span = text.partition("=")
    try:
        first, last, step = (Decimal(part) for part in span.split(":"))
    except (ValueError, InvalidOperation):
        raise ValueError(_EXPECTED) from None
    if name.strip() != SWEPT_SETTING or not all(part.is_finite() for part in (first, last, step)):
        raise ValueError(_EXPECTED)
    if not (0 < first <= last <= 1_000_000 and step > 0):
        raise ValueError(f"{_EXPECTED}: above 0, rising")
    steps = int((last - first) / step) + 1
    if steps > MAX_STEPS:
        raise ValueError(f"{steps} steps; expected at most {MAX_STEPS}")
    return tuple(first + step * number for number in range(steps))


def with_threshold(watch: Watch, price: Decimal) -> Watch:
    """Return the watch with this threshold instead of any other."""
    return msgspec.structs.replace(watch, max_price_usd_gpu_hour=price, auto=None, max_job_cost_usd=None, job=None)


def sweep_thresholds(
    watch: Watch,
    found: Sequence[BacktestCandidate],
    market_history: MarketHistory,
    setting: ReplaySettings,
    prices: Sequence[Decimal],
    deadline: timedelta,
) -> Iterator[tuple[Decimal, BacktestResult | None]]:
    """Replay each threshold by itself on the same market.

    Args:
        found: the candidates of the watch at the highest of these prices.
    """
    for price in prices:
        (watch_replay,), simulated = replay([(with_threshold(watch, price), found)], market_history, setting)
        yield price, result_of(watch_replay, simulated, deadline)
