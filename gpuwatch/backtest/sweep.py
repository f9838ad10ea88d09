"""One watch at many thresholds: what a lower price costs in waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation

import msgspec

from gpuwatch.analysis.tape import Tape
from gpuwatch.backtest.candidates import Candidate
from gpuwatch.backtest.replay import Setting, replay
from gpuwatch.backtest.report import Result, result_of
from gpuwatch.watches.watch import Watch

SWEPT = "max_price"
MOST_STEPS = 200
_EXPECTED = f"expected {SWEPT}=FROM:TO:STEP in dollars per GPU-hour, for example {SWEPT}=2.0:4.0:0.1"


def parse_sweep(text: str) -> tuple[Decimal, ...]:
    """The thresholds of "max_price=2.0:4.0:0.1", both ends included.

    Raises:
        ValueError: it is none; the message says what was expected.
    """
    name, _, span = text.partition("=")
    try:
        first, last, step = (Decimal(part) for part in span.split(":"))
    except (ValueError, InvalidOperation):
        raise ValueError(_EXPECTED) from None
    if name.strip() != SWEPT or not all(part.is_finite() for part in (first, last, step)):
        raise ValueError(_EXPECTED)
    if not (0 < first <= last <= 1_000_000 and step > 0):
        raise ValueError(f"{_EXPECTED}: above 0, rising")
    steps = int((last - first) / step) + 1
    if steps > MOST_STEPS:
        raise ValueError(f"{steps} steps; at most {MOST_STEPS} are tried in one go")
    return tuple(first + step * number for number in range(steps))


def at_price(watch: Watch, price: Decimal) -> Watch:
    """The same watch with this threshold, whatever it went by before."""
    return msgspec.structs.replace(watch, max_price_usd_gpu_hour=price, auto=None, max_job_cost_usd=None, job=None)


def sweep(
    watch: Watch,
    found: Sequence[Candidate],
    tape: Tape,
    setting: Setting,
    prices: Sequence[Decimal],
    deadline: timedelta,
) -> Iterator[tuple[Decimal, Result | None]]:
    """Each threshold by itself, on the same market.

    Args:
        found: the candidates of the watch at the highest of these prices.
    """
    for price in prices:
        (course,), book = replay([(at_price(watch, price), found)], tape, setting)
        yield price, result_of(course, book, deadline)
