"""What the samples of an instance's GPU use say: idle, wasted. Pure.

A sample that the provider did not give is unknown: it neither counts nor breaks a count. Where nobody looked for longer
than the whole span that a rule asks about, what lies before is not known to go on: the count begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec

from gpuwatch.domain.launches.end_rules import EndCause
from gpuwatch.domain.launches.launch import EndReason
from gpuwatch.domain.planning.utilisation import useful_usd_hour

LOOK_BACK = 3  # times the span: so far back a known sample may lie on which a rule leans


class UtilisationSample(msgspec.Struct, frozen=True):
    """GPU use at one look, in percent of all GPUs; None: the provider did not say."""

    at: datetime
    percent: float | None


def idle_cause(samples: Sequence[UtilisationSample], below: float, for_s: float, now: datetime) -> EndCause | None:
    """Is it idle? Every known sample of the last `for_s` is under `below`, and the first of the row is that old.

    Args:
        samples: oldest first; later ones than `now` (a clock that stepped back) are left out.
        below: percent; a sample at it is not under it.
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
    return EndReason.IDLE, f"{low[0].percent:g} % GPU use, under {below:g} % since {low[-1].at:%H:%M} UTC"


def mean_utilisation(samples: Sequence[UtilisationSample], for_s: float, now: datetime) -> float | None:
    """The mean of the known samples of the last `for_s`; None: they do not reach so far back, or are fewer than two."""
    span = timedelta(seconds=for_s)
    known = [sample for sample in _since_gap(samples, span, now) if sample.percent is not None]
    if not known or now - known[0].at < span:
        return None
    values = [sample.percent for sample in known if now - sample.at <= span and sample.percent is not None]
    return sum(values) / len(values) if len(values) >= 2 else None


def useful_usd_gpu_hour(gpu_price_usd_hour: Decimal, percent: float) -> Decimal | None:
    """What an hour of a GPU that really works costs: price ÷ use, to the cent; None: nothing works.

    Args:
        percent: 0 to 100.
    """
    found = useful_usd_hour(gpu_price_usd_hour, percent)
    return None if found is None else found.quantize(Decimal("0.01"))


def wasted_microusd(cost_microusd: int, percent: float) -> int:
    """The part of a cost that bought no work, at an average use of `percent`."""
    return round(cost_microusd * (1 - min(max(percent, 0.0), 100.0) / 100))


def _since_gap(samples: Sequence[UtilisationSample], span: timedelta, now: datetime) -> list[UtilisationSample]:
    """The samples, oldest first, since the last time that nobody looked for longer than `span`."""
    unbroken: list[UtilisationSample] = []
    after = now
    for sample in reversed([sample for sample in samples if sample.at <= now]):
        if after - sample.at > span:
            break
        unbroken.append(sample)
        after = sample.at
    return unbroken[::-1]
