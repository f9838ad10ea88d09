"""Is it cheaper at night, or at weekends? Effects with intervals and tests; the verdict may be "no effect". Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from enum import StrEnum

import msgspec
import numpy as np

from gpuwatch.domain.forecasts.week_patterns import (
    DAY,
    WEEK,
    HourlyLogs,
    HourOfWeekPrice,
    daily_pattern,
    day_profiles,
    hour_of_week_prices,
    hourly_logs,
    rotated_contrasts,
    without_daily_pattern,
)
from gpuwatch.domain.history.nonparametric import (
    Floats,
    abs_t_statistic,
    holm,
    max_statistic_p_values,
    mean_interval,
    rotation_p_value,
    t_quantile,
    t_two_sided_p,
)
from gpuwatch.domain.history.poll_timeline import Flags
from gpuwatch.domain.history.price_series import PriceSeries
from gpuwatch.domain.watches.windows import parse_window

MIN_DAYS, MIN_WEEKS = 14, 4
ALPHA = 0.025  # over all comparisons; half of 5 %, because no test is exact on prices that last for days
_MOST_ROWS = 180
CLAIMED_PERCENT = (30, 40)  # the saving that guides promise for nights and weekends
METHOD = (
    "lowest price of each hour, in logarithms; each part against the rest of the same day or week by least squares with"
    " a straight line; p of days: studentised rotation test, or Student's t where that is larger; of weeks: Student's t"
    " on weeks (Ibragimov and Müller); Holm over all comparisons; interval: circular block bootstrap of days or weeks,"
    " or Student's where that is wider"
)
HOURS_METHOD = (
    "each hour against the centred mean of the 24 hours around it; p: rotation test of the largest (Westfall and Young)"
)

_ALL_HOURS = (True,) * WEEK

NIGHT, WEEKEND = "22:00-08:00", "Sat-Sun"


class EffectVerdict(StrEnum):
    """The verdict on a difference."""

    NO_EFFECT = "no effect"
    CHEAPER = "cheaper"
    DEARER = "dearer"
    VARIES = "varies"  # the hours of the day differ
    NOT_ENOUGH = "not enough data"


class WeekPart(msgspec.Struct, frozen=True):
    """Hours of the week that are compared with other hours."""

    name: str
    window: str  # as given
    mask: tuple[bool, ...]  # 168 hours, Monday 00:00 first
    compared: tuple[bool, ...] = _ALL_HOURS  # the hours that take part, inside and outside

    @property
    def period(self) -> int:
        """24 if the hours that count are the same on every day; otherwise 168."""
        by_hour = [{self.mask[at] for at in range(hour, WEEK, DAY) if self.compared[at]} for hour in range(DAY)]
        return DAY if all(len(values) <= 1 for values in by_hour) else WEEK

    @property
    def days_a_week(self) -> int:
        """Days with hours that count."""
        return sum(any(self.compared[day : day + DAY]) for day in range(0, WEEK, DAY))

    @property
    def is_whole_days(self) -> bool:
        """Is each day entirely inside or entirely outside, counting only the hours that take part?"""
        by_day = [{self.mask[at] for at in range(day, day + DAY) if self.compared[at]} for day in range(0, WEEK, DAY)]
        return all(len(values) <= 1 for values in by_day)


class CalendarEffect(msgspec.Struct, frozen=True, kw_only=True):
    """How much cheaper the hours of a part are, in percent; below 0 they are more expensive."""

    name: str
    window: str
    verdict: EffectVerdict
    samples: int  # days or weeks with enough prices
    sample: str  # "days" or "weeks"
    needed: int
    cheaper_percent: float | None = None
    low_percent: float | None = None
    high_percent: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    detectable_percent: float | None = None  # the effect size that is detected four times in five
    without_offers_share: float | None = None  # of the hours inside that have a poll
    without_offers_elsewhere_share: float | None = None


class HourEffect(msgspec.Struct, frozen=True, kw_only=True):
    """One hour of the local day, compared with the day around it."""

    hour: int
    cheaper_percent: float
    p_adjusted: float
    verdict: EffectVerdict = EffectVerdict.NO_EFFECT


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `since`, `until`: the first and the last hour with a price; None: there is none."""

    since: datetime | None
    until: datetime | None
    hours: int  # with a price
    hours_polled: int
    changes: int  # hours whose price differs from the hour before
    median_microusd: float | None
    cells: list[HourOfWeekPrice]
    effects: list[CalendarEffect]
    any_hour: CalendarEffect  # does any hour of the day differ from the others? it has no effect size
    by_hour: list[HourEffect]
    comparisons: int

    @property
    def is_answered(self) -> bool:
        """Was there enough data for any comparison?"""
        return self.comparisons > 0


def week_part(name: str, text: str) -> WeekPart:
    """The hours inside one or several windows, such as "22:00-08:00,Sat-Sun". All others are compared with them.

    Raises:
        ValueError: all hours or none are inside, or a window does not start and end on the hour.
    """
    try:
        windows = [parse_window(text)]  # commas separate days, too
    except ValueError:
        windows = [parse_window(part) for part in text.split(",")]
    if any(window.start_minute % 60 or window.end_minute % 60 for window in windows):
        raise ValueError("a part of the week must start and end on the hour")
    mask = tuple(any(window.holds(at // DAY, at % DAY * 60) for window in windows) for at in range(WEEK))
    if all(mask) or not any(mask):
        raise ValueError("there is no other hour to compare with" if all(mask) else "it contains no hour")
    return WeekPart(name, text, mask)


def default_parts() -> list[WeekPart]:
    """Off-peak hours, and within them the nights of weekdays and the days of weekends, each against the peak hours.

    Against all other hours, a night would be compared with weekend days, too, and a weekend with weekday nights.
    """
    off_peak = week_part("off-peak", f"{NIGHT},{WEEKEND}")
    weekend = week_part("weekend", WEEKEND).mask
    night = week_part("night", NIGHT).mask
    peak = [not inside for inside in off_peak.mask]
    week_nights = tuple(at_night and not at_weekend for at_night, at_weekend in zip(night, weekend, strict=True))
    weekend_days = tuple(at_weekend and not at_night for at_night, at_weekend in zip(night, weekend, strict=True))
    return [
        off_peak,
        _against(peak, "night", f"Mon-Fri {NIGHT}", week_nights),
        _against(peak, "weekend", f"{WEEKEND} 08:00-22:00", weekend_days),
    ]


def _against(others: Sequence[bool], name: str, window: str, mask: tuple[bool, ...]) -> WeekPart:
    return WeekPart(name, window, mask, tuple(inside or other for inside, other in zip(mask, others, strict=True)))


def calendar_of(series: PriceSeries, zone: tzinfo, parts: Sequence[WeekPart], seed: int = 0) -> Calendar:
    """Compute the whole calendar."""
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
        effects=[_with_no_offers(effect, part, hours, series) for effect, part in zip(effects, parts, strict=True)],
        any_hour=any_hour,
        by_hour=by_hour,
        comparisons=sum(one.p is not None for one in [*effects, any_hour]),
    )


def compare_parts(
    hours: HourlyLogs, parts: Sequence[WeekPart], seed: int
) -> tuple[list[CalendarEffect], CalendarEffect, list[HourEffect]]:
    """Compare the parts, any hour, and each hour of the day, corrected for the number of comparisons."""
    alone = [_effect(hours, part, seed, among=len(parts) + 1) for part in parts]
    any_hour, by_hour = _hours(day_profiles(hours), daily_pattern(hours), seed)
    *effects, any_hour = _judged([*alone, any_hour])
    return effects, any_hour, _corrected_hours(by_hour, any_hour)


def _effect(hours: HourlyLogs, part: WeekPart, seed: int, among: int) -> CalendarEffect:
    """Compare one part with the rest, before correction; `among` is the number of comparisons."""
    sample, needed = ("days", MIN_DAYS * part.days_a_week // 7) if part.period == DAY else ("weeks", MIN_WEEKS)
    adjusted_hours = without_daily_pattern(hours) if part.is_whole_days else hours
    turned = rotated_contrasts(adjusted_hours, np.array(part.mask), np.array(part.compared), part.period, needed)
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
    """The p-value of a part. Rotating weeks by whole days gives too few cases, so weeks use Student's t only."""
    student = t_two_sided_p(float(abs_t_statistic(turned[:, 0])), len(turned) - 1)
    return student if part.period == WEEK else max(student, rotation_p_value(turned, seed))


def _detectable(own: Floats, among: int) -> float:
    """The effect size that is detected four times in five, if it is the strongest of this many."""
    freedom = len(own) - 1
    error = float(own.std(ddof=1)) / math.sqrt(len(own))
    return _cheaper(-error * (t_quantile(1 - ALPHA / among / 2, freedom) + t_quantile(0.8, freedom)))


def _hours(profiles: Floats, means: Floats, seed: int) -> tuple[CalendarEffect, list[HourEffect]]:
    """Test whether any hour of the day differs from the others, and compute by how much each does."""
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
    ps = max_statistic_p_values(_pooled_days(profiles), seed)
    by_hour = [
        HourEffect(hour=at, cheaper_percent=_cheaper(float(means[at])), p_adjusted=float(ps[at])) for at in range(DAY)
    ]
    return msgspec.structs.replace(found, p=float(ps.min())), by_hour


def _pooled_days(profiles: Floats) -> Floats:
    """For a long history, the means of consecutive days: as good for the test, and faster."""
    days = -(-len(profiles) // _MOST_ROWS)
    rows = len(profiles) // days
    means: Floats = profiles[len(profiles) - rows * days :].reshape(rows, days, -1).mean(1)
    return means


def _judged(effects: Sequence[CalendarEffect]) -> list[CalendarEffect]:
    """Set the verdicts, corrected for all comparisons that had enough data."""
    adjusted = iter(holm([effect.p for effect in effects if effect.p is not None]))
    return [effect if effect.p is None else _with_verdict(effect, next(adjusted)) for effect in effects]


def _with_verdict(effect: CalendarEffect, p_adjusted: float) -> CalendarEffect:
    verdict = EffectVerdict.NO_EFFECT
    if p_adjusted <= ALPHA and effect.low_percent is not None and effect.high_percent is not None:
        verdict = _side(effect.low_percent, effect.high_percent)
    elif p_adjusted <= ALPHA:
        verdict = EffectVerdict.VARIES
    return msgspec.structs.replace(effect, p_adjusted=p_adjusted, verdict=verdict)


def _side(low: float, high: float) -> EffectVerdict:
    """The verdict; no effect if the interval contradicts the test."""
    return EffectVerdict.CHEAPER if low > 0 else EffectVerdict.DEARER if high < 0 else EffectVerdict.NO_EFFECT


def _corrected_hours(by_hour: Sequence[HourEffect], any_hour: CalendarEffect) -> list[HourEffect]:
    """Raise each hour's p-value by the factor that the test of any hour was raised by, and set the verdicts."""
    if any_hour.p is None or any_hour.p_adjusted is None:
        return []
    raised = any_hour.p_adjusted / any_hour.p
    found = [msgspec.structs.replace(effect, p_adjusted=min(1.0, effect.p_adjusted * raised)) for effect in by_hour]
    return [
        msgspec.structs.replace(one, verdict=_side(one.cheaper_percent, one.cheaper_percent))
        if one.p_adjusted <= ALPHA
        else one
        for one in found
    ]


def _with_no_offers(effect: CalendarEffect, part: WeekPart, hours: HourlyLogs, series: PriceSeries) -> CalendarEffect:
    """Add the shares of hours without offers, inside and outside: a missing price is not a cheap price."""
    polled = np.array(series.polled, dtype=bool)
    absent, inside = polled & np.isnan(hours.logs), np.array(part.mask)[hours.labels]
    compared = np.array(part.compared)[hours.labels]
    shares = [_share(absent, polled & compared & where) for where in (inside, ~inside)]
    return msgspec.structs.replace(effect, without_offers_share=shares[0], without_offers_elsewhere_share=shares[1])


def _share(absent: Flags, among: Flags) -> float | None:
    return float(absent[among].mean()) if among.any() else None


def _cheaper(log_difference: float) -> float:
    """Percent cheaper, from a difference of natural logarithms."""
    return 100 * (1 - math.exp(log_difference)) + 0.0
