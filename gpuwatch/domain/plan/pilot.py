"""Extrapolates a short run on a hundredth of the data: the time of the whole job, and whether its loss falls."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import msgspec

from gpuwatch.domain.plan.figures import FigureRange

VARIATION = 1.1  # the mean speed of the whole job may differ from that of a pilot by this factor (assumed)
PILOT_METHOD_TEXT = (
    "time: tokens ÷ the measured speed, ± 10 %; loss: a straight line over the logarithm of the tokens seen"
)


class PilotPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The whole job, extrapolated from its pilot. `loss`: at its end, if the trend continues; None: not measured."""

    hours: FigureRange
    pilot_hours: float
    loss: float | None
    falls: bool | None  # whether the loss falls; None: not measured


def plan_pilot(tokens: float, per_s: FigureRange, share: float, losses: Sequence[float]) -> PilotPlan:
    """Extrapolate a pilot.

    Args:
        tokens: tokens of the whole job.
        per_s: measured speed; a single figure is widened by `VARIATION`.
        share: share of the tokens that the pilot processed, 0 to 1.
        losses: at equal intervals, the last one at the pilot's end; empty, or at least two.
    """
    around = 1.0 if per_s.is_wide else VARIATION
    hours = FigureRange(tokens / (per_s.high * around) / 3600, tokens / (per_s.low / around) / 3600)
    pilot_hours = tokens * share / (per_s.low * per_s.high) ** 0.5 / 3600
    if not losses:
        return PilotPlan(hours=hours, pilot_hours=pilot_hours, loss=None, falls=None)
    slope = _slope([log2(at) for at in range(1, len(losses) + 1)], losses)
    return PilotPlan(
        hours=hours,
        pilot_hours=pilot_hours,
        loss=max(0.0, losses[-1] + slope * log2(1 / share)),
        falls=slope < 0,
    )


def _slope(places: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the least-squares line."""
    middle, mean = sum(places) / len(places), sum(values) / len(values)
    spread = sum((place - middle) ** 2 for place in places)
    return sum((at - middle) * (value - mean) for at, value in zip(places, values, strict=True)) / spread
