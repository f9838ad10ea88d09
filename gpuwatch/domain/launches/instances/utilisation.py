"""Evaluate samples of GPU utilisation: idle time and wasted money. Pure.

A missing sample is unknown: it neither counts nor interrupts a run. If there was no poll for longer than the whole span
of a rule, older samples prove nothing, and the count starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec

from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.launch import EndReason
from gpuwatch.domain.market.figure_text import number_text
from gpuwatch.domain.plan.utilisation import useful_usd_hour

LOOK_BACK = 3  # times the span: the maximum age of a usable sample


class UtilisationSample(msgspec.Struct, frozen=True):
    """GPU utilisation in one poll, in percent of all GPUs; None: not reported."""

    at: datetime
    percent: float | None


def idle_cause(samples: Sequence[UtilisationSample], below: float, for_s: float, now: datetime) -> EndCause | None:
    """Return an end cause if every known sample of the last `for_s` is below `below`, and the first of them is that
    old.

    Args:
        samples: oldest first; those later than `now` (a clock that stepped back) are ignored.
        below: percent; a sample equal to it is not below it.
    """
    span = timedelta(seconds=for_s)
    low: list[UtilisationSample] = []
    for sample in reversed(_since_gap(samples, span, now)):
        if sample.percent is None:
            continue
        if sample.percent >= below:
            break
        low.append(sample)
    if len(low) < 2 or now - low[-1].at < span:
        return None
    return (
        EndReason.IDLE,
        f"GPU utilisation {number_text(low[0].percent)} %, under {below:g} % since {low[-1].at:%H:%M} UTC",
    )


def mean_utilisation(samples: Sequence[UtilisationSample], for_s: float, now: datetime) -> float | None:
    """Return the mean of the known samples of the last `for_s`.

    None: the samples do not reach back that far, or are fewer than two.
    """
    span = timedelta(seconds=for_s)
    known = [sample for sample in _since_gap(samples, span, now) if sample.percent is not None]
    if not known or now - known[0].at < span:
        return None
    values = [sample.percent for sample in known if now - sample.at <= span and sample.percent is not None]
    return sum(values) / len(values) if len(values) >= 2 else None


def useful_usd_gpu_hour(gpu_price_usd_hour: Decimal, percent: float) -> Decimal | None:
    """Return the price of one fully used GPU-hour, price ÷ utilisation, to the cent; None: utilisation is 0.

    Args:
        percent: 0 to 100.
    """
    found = useful_usd_hour(gpu_price_usd_hour, percent)
    return None if found is None else found.quantize(Decimal("0.01"))


def wasted_microusd(cost_microusd: int, percent: float) -> int:
    """Return the part of a cost that bought no work, at a mean utilisation of `percent`."""
    return round(cost_microusd * (1 - min(max(percent, 0.0), 100.0) / 100))


def _since_gap(samples: Sequence[UtilisationSample], span: timedelta, now: datetime) -> list[UtilisationSample]:
    """The samples, oldest first, after the last gap between polls longer than `span`."""
    unbroken: list[UtilisationSample] = []
    after = now
    for sample in reversed([sample for sample in samples if sample.at <= now]):
        if after - sample.at > span:
            break
        unbroken.append(sample)
        after = sample.at
    return unbroken[::-1]
