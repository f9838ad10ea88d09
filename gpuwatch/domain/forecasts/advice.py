"""Advice whether to wait or to buy before a deadline, from an hourly price series. Pure.

- `advise`: the verdict, the limits from now to the deadline, and what they rest on;
- how often a price was reached within a deadline, from starts like now;
- what waiting saved, measured on hours that the rule was not fitted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np

from gpuwatch.domain.forecasts.optimal_stopping import (
    BestRule,
    ChosenRule,
    PricePath,
    RuleKind,
    best_stopping_rule,
    level_of,
    price_path_of,
)
from gpuwatch.domain.forecasts.price_forecasts import ForecastRecord
from gpuwatch.domain.forecasts.wait_outcomes import Numbers
from gpuwatch.domain.history.nonparametric import kaplan_meier
from gpuwatch.domain.history.poll_timeline import Flags
from gpuwatch.domain.history.price_series import LEAST_KNOWN_SHARE, PriceSeries, step_name

REACHED_SHARES = (0.5, 0.8, 0.95)
MIN_KNOWN_HOURS = 72
MIN_KNOWN_STEPS = 14  # days or weeks of a slow market (assumed)
MIN_DEADLINES = 4  # the history must be this many deadlines long
_LEAST_WAITING_H = 24
_LEAST_DAYS = 5
_DRAWS = 2000
_MOST_SHOWN = 9
_MOST_CANDIDATES = 100  # prices that are tried
_LEAST_STRETCHES = 4  # above a price, to say how often it is reached from there
_SIMILAR_SHARE = 0.1
_LEAST_SIMILAR_DAYS, _LEAST_SIMILAR = 2, 8
_STANDARD_95 = 1.959964
_HAIR = 1e-9


LEAST_SAVING = 0.01  # assumed: a smaller mean saving is not worth the risk of a wait, which may cost several percent


class BuyVerdict(StrEnum):
    """The recommendation."""

    BUY_NOW = "buy_now"
    WAIT = "wait"
    EITHER = "either"  # waiting paid off on average, but that may be chance


class WaitingSaving(msgspec.Struct, frozen=True, kw_only=True):
    """The share saved by waiting instead of buying at once, measured in hours that the rule was not fitted on.

    It covers waits that started at prices near the current one. The part of a saving that may be chance is removed.
    """

    share: float
    low: float  # 95 % range of a single wait, such as yours
    high: float
    mean_low: float  # 95 % interval of the mean
    mean_high: float
    hours: int  # hours in which a wait with a known outcome started
    days: int  # days with such hours
    missed: int = 0  # of these waits: nothing was on offer at the deadline; they pay for the next offer
    unknown: int = 0  # further waits: no poll at their deadline

    @property
    def starts(self) -> int:
        """All of these waits: bought, missed or unknown."""
        return self.hours + self.unknown


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars per GPU-hour, commission included."""

    verdict: BuyVerdict
    why: str
    now_usd: float | None  # the lowest price of the newest hour; None: nothing was on offer, or there was no poll
    hours: int  # to the deadline, in whole steps of the series
    limits_usd: tuple[float | None, ...]  # index: whole steps left; None: any price
    reached: tuple[tuple[float, float | None], ...]  # share of starts → the price reached before the deadline; None:
    # too few starts to tell
    reached_starts: int  # starts at prices near the current one; `reached` is computed from them
    rule: RuleKind
    saving: WaitingSaving | None  # None: too few hours in which the rule would have waited
    median_usd: float | None  # of the history; the limit of the fixed-median rule
    relative: bool  # the limits follow the median of the week
    known_hours: int  # entries with a poll: hours, or steps of a slow market
    span_hours: int
    step_h: int = 1

    @property
    def limit_usd(self) -> float | None:
        """Buy now at or under this price. None: at any price."""
        return self.limits_usd[-1]


def why_too_little_data(series: PriceSeries, hours: int) -> str | None:
    """Why the history is too short for a deadline this many hours away; None: it is long enough."""
    span, known = len(series.polled), series.known
    unit = f"{step_name(series.step_h)}s"
    least = MIN_KNOWN_HOURS if series.step_h == 1 else MIN_KNOWN_STEPS
    needed = MIN_DEADLINES * steps_until(series, hours)
    if not known:
        return "such offers were not polled in that time"
    if known < least:
        return f"polled in {known} {unit}; {least} are required"
    if known < LEAST_KNOWN_SHARE * span:
        return f"polled in only {known} of {span} {unit}; a quarter is required"
    if span < needed:
        return f"it covers {span} {unit}; {MIN_DEADLINES} times the deadline, {needed}, is required"
    if all(low is None for low in series.lows):
        return "there were no offers in that time"
    return None


def steps_until(series: PriceSeries, hours: int) -> int:
    """Whole steps of the series until a deadline; at least one, the shortest wait that can be judged."""
    return max(1, hours // series.step_h)


def advise(series: PriceSeries, hours: int, record: ForecastRecord | None = None) -> Advice:
    """Advise what to do now, at the end of the series, which must be long enough (`why_too_little_data`).

    A wait that has no GPU at the deadline pays for the next offer (`wait_outcomes`). In a slow market, the deadline is
    rounded down to whole steps of the series.

    Args:
        record: the outcomes of earlier forecasts; it shrinks the saving and may rule out optimal stopping.
    """
    path, steps = price_path_of(series), steps_until(series, hours)
    found = best_stopping_rule(path, steps, is_simple=record is not None and not record.trusts_optimal_stopping)
    lowest = float(np.nanmin(path.prices)) if known_prices(path).any() else None
    limits = limits_now(path, found, lowest)
    now = None if np.isnan(path.prices[-1]) else float(path.prices[-1])
    known = known_prices(path)
    near = similar_starts(path, now, known)
    starts = similar_starts(path, now, known & found.waits)
    saving = saving_of(found, series.first_hour, steps, starts, day=path.day)
    if saving is not None and record is not None:
        saving = msgspec.structs.replace(saving, share=saving.share * record.shrink)
    possible = saving
    if saving is not None and now is not None and lowest is not None:
        possible = scaled_to(saving, 1 - lowest / now)
    verdict, why = _verdict(now, limits[steps], saving, possible)
    return Advice(
        verdict=verdict,
        why=why,
        now_usd=now,
        hours=steps * series.step_h,
        limits_usd=limits,
        reached=tuple((share, reached(path, steps, share, near, now)) for share in REACHED_SHARES),
        reached_starts=int(near.sum()),
        rule=found.kind,
        saving=possible,
        median_usd=None if np.isnan(path.prices).all() else float(np.nanmedian(path.prices)),
        relative=found.rule.relative,
        known_hours=series.known,
        span_hours=len(series.polled),
        step_h=series.step_h,
    )


def known_prices(path: PricePath) -> Flags:
    """The hours with a poll and an offer."""
    found: Flags = path.polled & ~np.isnan(path.prices)
    return found


def scaled_to(saving: WaitingSaving, most: float) -> WaitingSaving:
    """The saving if no wait can save more than this share: the history has no lower price.

    Similar waits may have started higher, from where the way down is longer: all gains shrink in proportion.
    """
    part = min(1.0, max(0.0, most) / saving.high) if saving.high > 0 else 1.0
    gains = {name: getattr(saving, name) for name in ("share", "low", "high", "mean_low", "mean_high")}
    return msgspec.structs.replace(saving, **{name: gain * part if gain > 0 else gain for name, gain in gains.items()})


def limits_now(path: PricePath, found: ChosenRule, lowest: float | None = None) -> tuple[float | None, ...]:
    """The limits in dollars, at the current price level; none below the lowest price of the history."""
    level = level_of(path) if found.rule.relative else path.prices[:0]
    known = level[~np.isnan(level)]
    scale = float(known[-1]) if len(known) else 1.0
    return tuple(None if np.isinf(limit) else max(limit * scale, lowest or 0.0) for limit in found.rule.limits)


def limit_changes(advice: Advice) -> Sequence[tuple[int, float | None]]:
    """(steps left, limit from then on) where the limit changes; a sample if there are many changes."""
    limits = advice.limits_usd
    most = len(limits) - 1
    changes = [left for left in range(most, -1, -1) if left == most or limits[left] != limits[left + 1]]
    if len(changes) > _MOST_SHOWN:
        picked = np.linspace(0, len(changes) - 1, _MOST_SHOWN).round().astype(int)
        changes = [changes[at] for at in dict.fromkeys(picked.tolist())]
    return [(left, limits[left]) for left in changes]


def _verdict(
    now: float | None, limit: float | None, saving: WaitingSaving | None, possible: WaitingSaving | None
) -> tuple[BuyVerdict, str]:
    """Return what to do, and why.

    Args:
        possible: the saving from the current price on.
    """
    if now is None:
        return BuyVerdict.WAIT, "no current offers are known"
    if limit is None:
        return BuyVerdict.BUY_NOW, "in this history, waiting cost more than buying immediately"
    if now <= limit:
        return BuyVerdict.BUY_NOW, "the price is at or under the limit"
    if saving is None:
        return BuyVerdict.EITHER, "too few hours of the history have such a price to show whether waiting pays"
    if saving.mean_low + saving.mean_high <= 0:
        return BuyVerdict.BUY_NOW, "in similar hours, waiting saved nothing out of sample"
    if possible is not None and possible.share < LEAST_SAVING:
        least = f"{LEAST_SAVING * 100:g} %"
        return BuyVerdict.BUY_NOW, f"waiting saved less than {least} on average, less than the risk"
    if saving.mean_low <= 0:
        return BuyVerdict.EITHER, "waiting paid on average, but that may be chance; if your time is valuable, buy now"
    return BuyVerdict.WAIT, "the price is above the limit, and waiting paid out of sample"


# --- how often a price was reached ------------------------------------------------------------------------------------


def similar_starts(path: PricePath, now: float | None, among: Flags) -> Flags:
    """The hours with the prices nearest to the current one: a tenth of the hours, but at least two days.

    The result of waiting depends on the price at its start. Without a current price: all hours.

    Args:
        among: hours with a price.
    """
    if now is None or not among.any():
        return among
    distance = np.full(len(among), np.inf)
    distance[among] = np.abs(np.log(path.prices[among] / now))
    least = max(_LEAST_SIMILAR_DAYS * path.day, _LEAST_SIMILAR)
    wanted = min(max(least, int(among.sum() * _SIMILAR_SHARE)), int(among.sum()))
    similar: Flags = distance <= np.sort(distance)[wanted - 1] + _HAIR
    return similar


def reached(
    path: PricePath, hours: int, share: float, starts: Flags | None = None, now: float | None = None
) -> float | None:
    """The lowest price that this share of the starts reached in this many hours; None: not even the highest price.

    From a current price, only starts above the price count, after at least as long a time above it as now: starts at or
    under it say nothing about the way down, and a price that has lasted tends to last. Every price between the current
    one and the result must have been reached as often; the current one is there.

    A Kaplan-Meier estimate of the hours until a price was first reached, because the last starts were not observed to
    their end. Neighbouring starts see the same prices. So the required share is that of a quantile of n independent
    starts: share × (n + 1) / n.
    """
    starts = path.polled if starts is None else starts
    if now is not None:
        return _reached_below(path, hours, share, starts, now)
    prices = np.unique(path.prices[~np.isnan(path.prices)])
    independent = len(np.unique(np.nonzero(starts)[0] // max(1, hours)))
    wanted = share * (independent + 1) / independent if independent else np.inf
    low, high = 0, len(prices)
    while low < high:
        middle = (low + high) // 2
        if met_within(path, float(prices[middle]), hours, starts) >= wanted:
            high = middle
        else:
            low = middle + 1
    return float(prices[low]) if low < len(prices) else None


def _reached_below(path: PricePath, hours: int, share: float, starts: Flags, now: float) -> float:
    """The lowest price below the current one that was reached often enough; the current one if there is none.

    All starts in one stretch above a price end with the same fall, so that they count as one.
    """
    prices = np.unique(path.prices[path.prices < now])
    picked = np.linspace(0, len(prices) - 1, min(len(prices), _MOST_CANDIDATES)).round().astype(int)
    found = now
    for price in prices[np.unique(picked)[::-1]].tolist():
        is_met = path.prices <= price
        lasted = _hours_above(is_met)
        above = starts & ~is_met & (lasted >= lasted[-1])
        stretches = len(np.unique(np.cumsum(is_met)[above]))
        if stretches < _LEAST_STRETCHES:
            break
        if met_within(path, price, hours, above) < share * (stretches + 1) / stretches:
            break
        found = price
    return found


def _hours_above(is_met: Flags) -> Numbers:
    """Hours since a price was last met, by hour."""
    places = np.arange(len(is_met))
    return (places - np.maximum.accumulate(np.where(is_met, places, -1))).astype(float)


def met_within(path: PricePath, price: float, hours: int, starts: Flags | None = None) -> float:
    """The share of the starts that saw an offer at or under a price within this many hours."""
    waited, met = hours_until(path.prices <= price)
    starts = path.polled if starts is None else starts
    return 1.0 - kaplan_meier(waited[starts].tolist(), met[starts].tolist()).at(hours)


def hours_until(holds: Flags) -> tuple[Numbers, Flags]:
    """Hours from each hour to the next one where `holds` is true, or to the end; and whether there is such an hour."""
    count = len(holds)
    places = np.where(holds, np.arange(count), count)
    following = np.minimum.accumulate(places[::-1])[::-1]
    return np.minimum(following, count - 1).astype(float) - np.arange(count), following < count


# --- what waiting saved -----------------------------------------------------------------------------------------------


def saving_of(
    found: BestRule, first_hour: int, hours: int, starts: Flags | None = None, seed: int = 0, day: int = 24
) -> WaitingSaving | None:
    """The saving over the hours in which the rule would have waited. None: too few such hours.

    Args:
        starts: hours in which a wait may start; None: all.
        day: entries in a day, or 1 on a slow market.
    """
    begun = found.waits & (True if starts is None else starts)
    known = begun & ~np.isnan(found.costs) & ~np.isnan(found.at_once)
    at = np.nonzero(known)[0]
    days = (first_hour + np.arange(len(known))) // day
    if len(at) < _LEAST_WAITING_H or len(np.unique(days[at])) < _LEAST_DAYS:
        return None
    spent, once = (
        np.bincount(days[at] - days[0], one[at], minlength=int(days[-1] - days[0]) + 1).astype(float)
        for one in (found.costs, found.at_once)
    )
    mean_low, mean_high = saving_interval(spent, once, block_days=1 + -(-hours // day), seed=seed)
    share = 1 - float(spent.sum() / once.sum())
    low, high = _of_one_wait(1 - found.costs[at] / found.at_once[at], len(np.unique(at // hours)))
    by_chance = min(1.0, ((mean_high - mean_low) / 2 / _STANDARD_95 / share) ** 2) if share else 0.0
    return WaitingSaving(
        share=share * (1 - by_chance),
        low=low,
        high=high,
        mean_low=mean_low,
        mean_high=mean_high,
        hours=len(at),
        days=len(np.unique(days[at])),
        missed=int((found.missed & known).sum()),
        unknown=int((begun & ~known).sum()),
    )


def _of_one_wait(savings: Numbers, independent: int) -> tuple[float, float]:
    """95 % prediction interval of one wait: the wider of the observed quantiles and Student's t.

    A new wait lies outside the extremes of n independent waits in 2 of n + 1 cases, so few waits use their extremes.
    """
    few = max(2, independent)
    tail = max(0.0, (0.025 * (few + 1) - 1) / (few - 1))
    low, high = (float(bound) for bound in np.quantile(savings, (tail, 1 - tail)))
    reach = _student(few - 1) * float(savings.std(ddof=1)) * (1 + 1 / few) ** 0.5
    mean = float(savings.mean())
    return min(low, mean - reach), min(1.0, max(high, mean + reach))


def saving_interval(spent: Numbers, once: Numbers, block_days: int, seed: int) -> tuple[float, float]:
    """95 % interval of the share saved, from daily sums. Prices last for days, so days are resampled in blocks.

    Circular blocks: Politis and Romano, 1992. Few blocks: Student's t.
    """
    count = len(spent)
    block = min(block_days, max(1, count // 2))
    begins = np.random.default_rng(seed).integers(0, count, (_DRAWS, -(-count // block)))
    drawn = ((begins[:, :, None] + np.arange(block)) % count).reshape(_DRAWS, -1)[:, :count]
    sums = once[drawn].sum(axis=1)
    shares = 1 - spent[drawn].sum(axis=1)[sums > 0] / sums[sums > 0]
    blocks = int((once > 0).sum()) // block
    reach = _student(max(2, blocks - 1)) * float(shares.std(ddof=1))
    share = 1 - float(spent.sum() / once.sum())
    return share - reach, share + reach


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's t, by Cornish and Fisher's expansion: within 2 % from 3 degrees on."""
    z = _STANDARD_95
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
