"""Is it cheaper at night, or at weekends? Effects with intervals and tests, and a verdict that may be "no effect"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from enum import StrEnum

import msgspec
import numpy as np

from gpuwatch.domain.analysis.contrasts import (
    DAY,
    WEEK,
    Bools,
    HourlyLogs,
    daily_pattern,
    day_profiles,
    hourly_logs,
    rotated_contrasts,
    without_daily_pattern,
)
from gpuwatch.domain.analysis.hour_of_week import HourOfWeekPrice, hour_of_week_prices
from gpuwatch.domain.analysis.price_series import PriceSeries
from gpuwatch.domain.analysis.resampling import (
    Floats,
    abs_t_statistic,
    holm,
    max_statistic_p_values,
    mean_interval,
    rotation_p_value,
    t_quantile,
    t_two_sided_p,
)
from gpuwatch.domain.watches.windows import Window

MIN_DAYS, MIN_WEEKS = 14, 4
ALPHA = 0.025  # of all comparisons together: prices that stand for days leave no test exact, so there is room to 5 %
_MOST_ROWS = 180
CLAIMED_PERCENT = (30, 40)  # what guides promise for nights and weekends
METHOD = (
    "lowest price of each hour, in logarithms; each part against the rest of the same day or week by least squares with"
    " a straight line; p of days: studentised rotation test, or Student's t where that is larger; of weeks: Student's t"
    " on weeks (Ibragimov and Müller); Holm over all comparisons; interval: circular block bootstrap of days or weeks,"
    " or Student's where that is wider"
)
HOURS_METHOD = (
    "each hour against the centred mean of the 24 hours around it; p: rotation test of the largest (Westfall and Young)"
)


class EffectVerdict(StrEnum):
    """What can be said of a difference."""

    NO_EFFECT = "no effect"
    CHEAPER = "cheaper"
    DEARER = "dearer"
    VARIES = "varies"  # the hours of the day are not alike
    NOT_ENOUGH = "not enough data"


class WeekPart(msgspec.Struct, frozen=True):
    """Hours of the week that are compared with all others."""

    name: str
    window: str  # as it was asked
    mask: tuple[bool, ...]  # 168 hours, Monday 00:00 first

    @property
    def period(self) -> int:
        """24 if every day is alike, else 168."""
        return DAY if self.mask == self.mask[:DAY] * 7 else WEEK

    @property
    def is_whole_days(self) -> bool:
        """Does each day lie inside or outside as a whole?"""
        return all(len(set(self.mask[at : at + DAY])) == 1 for at in range(0, WEEK, DAY))


class CalendarEffect(msgspec.Struct, frozen=True, kw_only=True):
    """How much cheaper a part is, in percent; below 0 it is dearer."""

    name: str
    window: str
    verdict: EffectVerdict
    samples: int  # days or weeks that tell
    sample: str  # "days" or "weeks"
    needed: int
    cheaper_percent: float | None = None
    low_percent: float | None = None
    high_percent: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    detectable_percent: float | None = None  # this much would be found four times in five
    without_offers_share: float | None = None  # of the looked-at hours inside
    without_offers_elsewhere_share: float | None = None


class HourEffect(msgspec.Struct, frozen=True, kw_only=True):
    """One hour of the local day against the day around it."""

    hour: int
    cheaper_percent: float
    p_adjusted: float
    verdict: EffectVerdict = EffectVerdict.NO_EFFECT


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. `since`, `until`: the first and the last hour with a price; None: there is none."""

    since: datetime | None
    until: datetime | None
    hours: int  # with a price
    hours_polled: int
    changes: int  # hours in which the price was another than in the hour before
    median_microusd: float | None
    cells: list[HourOfWeekPrice]
    effects: list[CalendarEffect]
    any_hour: CalendarEffect  # is any hour of the day unlike the others? no size of its own
    by_hour: list[HourEffect]
    comparisons: int

    @property
    def is_answered(self) -> bool:
        """Was there enough for any comparison?"""
        return self.comparisons > 0


def week_part(name: str, text: str, windows: Sequence[Window]) -> WeekPart:
    """Hours that lie in one of these windows.

    Raises:
        ValueError: all hours do, or none; or a window does not begin and end on the hour.
    """
    if any(window.start_minute % 60 or window.end_minute % 60 for window in windows):
        raise ValueError("a part of the week must begin and end on the hour")
    mask = tuple(any(one.holds(at // DAY, at % DAY * 60) for one in windows) for at in range(WEEK))
    if all(mask) or not any(mask):
        raise ValueError("nothing is left to compare it with" if all(mask) else "it holds no hour")
    return WeekPart(name, text, mask)


def calendar_of(series: PriceSeries, zone: tzinfo, parts: Sequence[WeekPart], seed: int = 0) -> Calendar:
    """All of it."""
    hours = hourly_logs(series, zone)
    effects, any_hour, by_hour = compare_parts(hours, parts, seed)
    known = np.flatnonzero(~np.isnan(hours.logs))
    logs = hours.logs[known]
    return Calendar(
        since=series.starts_at(int(known[0])) if len(known) else None,
        until=series.starts_at(int(known[-1]) + 1) if len(known) else None,
        hours=len(known),
        hours_polled=series.known,
        changes=int(np.sum(np.abs(np.diff(logs)) > 1e-12)),
        median_microusd=float(np.exp(np.median(logs))) if len(known) else None,
        cells=hour_of_week_prices(hours, seed),
        effects=[_with_absences(one, part, hours, series) for one, part in zip(effects, parts, strict=True)],
        any_hour=any_hour,
        by_hour=by_hour,
        comparisons=sum(one.p is not None for one in [*effects, any_hour]),
    )


def compare_parts(
    hours: HourlyLogs, parts: Sequence[WeekPart], seed: int
) -> tuple[list[CalendarEffect], CalendarEffect, list[HourEffect]]:
    """The parts, any hour at all, and each hour of the day, with all comparisons in mind."""
    alone = [_effect(hours, part, seed, among=len(parts) + 1) for part in parts]
    any_hour, by_hour = _hours(day_profiles(hours), daily_pattern(hours), seed)
    *effects, any_hour = _judged([*alone, any_hour])
    return effects, any_hour, _with_all_in_mind(by_hour, any_hour)


def _effect(hours: HourlyLogs, part: WeekPart, seed: int, among: int) -> CalendarEffect:
    """One part against the rest, by itself; `among` so many comparisons."""
    sample, needed = ("days", MIN_DAYS) if part.period == DAY else ("weeks", MIN_WEEKS)
    asked = without_daily_pattern(hours) if part.is_whole_days else hours
    turned = rotated_contrasts(asked, np.array(part.mask), part.period, needed)
    found = CalendarEffect(
        name=part.name,
        window=part.window,
        verdict=EffectVerdict.NOT_ENOUGH,
        samples=len(turned),
        sample=sample,
        needed=needed,
    )
    if len(turned) < needed:
        return found
    own = turned[:, 0]
    low, high = mean_interval(own, seed)
    return msgspec.structs.replace(
        found,
        cheaper_percent=_cheaper(float(own.mean())),
        low_percent=_cheaper(high),
        high_percent=_cheaper(low),
        p=_p(turned, part, seed),
        detectable_percent=_detectable(own, among),
    )


def _p(turned: Floats, part: WeekPart, seed: int) -> float:
    """Weeks are few: turned by whole days, they would leave chance too few cases. There only Student's t."""
    student = t_two_sided_p(float(abs_t_statistic(turned[:, 0])), len(turned) - 1)
    return student if part.period == WEEK else max(student, rotation_p_value(turned, seed))


def _detectable(own: Floats, among: int) -> float:
    """What an effect must be to be found four times in five, if it is the strongest of so many."""
    freedom = len(own) - 1
    error = float(own.std(ddof=1)) / math.sqrt(len(own))
    return _cheaper(-error * (t_quantile(1 - ALPHA / among / 2, freedom) + t_quantile(0.8, freedom)))


def _hours(profiles: Floats, means: Floats, seed: int) -> tuple[CalendarEffect, list[HourEffect]]:
    """Is any hour of the day unlike the others, and by how much is each?"""
    found = CalendarEffect(
        name="any hour",
        window="00-23",
        verdict=EffectVerdict.NOT_ENOUGH,
        samples=len(profiles),
        sample="days",
        needed=MIN_DAYS,
    )
    if len(profiles) < MIN_DAYS:
        return found, []
    ps = max_statistic_p_values(_together(profiles), seed)
    by_hour = [
        HourEffect(hour=at, cheaper_percent=_cheaper(float(means[at])), p_adjusted=float(ps[at])) for at in range(DAY)
    ]
    return msgspec.structs.replace(found, p=float(ps.min())), by_hour


def _together(profiles: Floats) -> Floats:
    """Of a long history, means of some days on end: as good for the test, and quick."""
    days = -(-len(profiles) // _MOST_ROWS)
    rows = len(profiles) // days
    means: Floats = profiles[len(profiles) - rows * days :].reshape(rows, days, -1).mean(1)
    return means


def _judged(effects: Sequence[CalendarEffect]) -> list[CalendarEffect]:
    """Verdicts, with all comparisons in mind for which there was enough."""
    adjusted = iter(holm([one.p for one in effects if one.p is not None]))
    return [one if one.p is None else _with_verdict(one, next(adjusted)) for one in effects]


def _with_verdict(effect: CalendarEffect, p_adjusted: float) -> CalendarEffect:
    verdict = EffectVerdict.NO_EFFECT
    if p_adjusted <= ALPHA and effect.low_percent is not None and effect.high_percent is not None:
        verdict = _side(effect.low_percent, effect.high_percent)
    elif p_adjusted <= ALPHA:
        verdict = EffectVerdict.VARIES
    return msgspec.structs.replace(effect, p_adjusted=p_adjusted, verdict=verdict)


def _side(low: float, high: float) -> EffectVerdict:
    """An interval must say the same as the test."""
    return EffectVerdict.CHEAPER if low > 0 else EffectVerdict.DEARER if high < 0 else EffectVerdict.NO_EFFECT


def _with_all_in_mind(by_hour: Sequence[HourEffect], any_hour: CalendarEffect) -> list[HourEffect]:
    """Each hour's p, raised as that of all hours together was; and its verdict."""
    if any_hour.p is None or any_hour.p_adjusted is None:
        return []
    raised = any_hour.p_adjusted / any_hour.p
    found = [msgspec.structs.replace(one, p_adjusted=min(1.0, one.p_adjusted * raised)) for one in by_hour]
    return [
        msgspec.structs.replace(one, verdict=_side(one.cheaper_percent, one.cheaper_percent))
        if one.p_adjusted <= ALPHA
        else one
        for one in found
    ]


def _with_absences(effect: CalendarEffect, part: WeekPart, hours: HourlyLogs, series: PriceSeries) -> CalendarEffect:
    """How often nothing was on offer inside and outside: a price that is not there is no cheap one."""
    polled = np.array(series.polled, dtype=bool)
    absent, inside = polled & np.isnan(hours.logs), np.array(part.mask)[hours.labels]
    shares = [_share(absent, polled & where) for where in (inside, ~inside)]
    return msgspec.structs.replace(effect, without_offers_share=shares[0], without_offers_elsewhere_share=shares[1])


def _share(absent: Bools, among: Bools) -> float | None:
    return float(absent[among].mean()) if among.any() else None


def _cheaper(log_difference: float) -> float:
    """Percent, from how much dearer something is in logarithms."""
    return 100 * (1 - math.exp(log_difference)) + 0.0
