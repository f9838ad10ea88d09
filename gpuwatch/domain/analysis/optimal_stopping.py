"""Buy now or wait, with a deadline: optimal stopping on the empirical paths, and what it was worth out of sample.

A rule is one limit for each number of hours left. Backward induction finds it: with one hour left the price is held
against what the last hour would cost, with two against what the rule for one comes to, and so on, each time the limit
that costs least over all hours of the history (the parametrised boundary of Andersen, 2000, for options that may be
exercised early). Whole paths are used, so that prices which stay for days stay so. A limit never falls as the deadline
nears. Two yardsticks are fitted: the price itself, and the price against the median of the week up to it, which a
market that moved to another level does not fool. Each is judged on stretches of the history that came after what it was
fitted on, and so is buying at once; what cost least is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwatch.domain.analysis.price_series import PriceSeries

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

METHOD = "optimal stopping by backward induction on the empirical paths (Andersen, 2000), judged by rolling origin"
ORIGINS = 6
LEVEL_HOURS = 168  # the level is the median of so many hours up to now …
_LEVEL_LEAST = 24  # … if so many of them are known
_HAIR = 1e-9


class PricePath(msgspec.Struct, frozen=True, kw_only=True):
    """An hourly series as arrays. `prices`: NaN where nothing was on offer, or nobody looked."""

    prices: Floats
    polled: Bools


class StoppingRule(msgspec.Struct, frozen=True, kw_only=True):
    """`limits[k]`: buy at or under it with k hours left; at 0 at any price. In dollars, or as a share of the level."""

    limits: tuple[float, ...]
    relative: bool


class EvaluatedRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a way of buying came to in hours that it was not fitted on. NaN where the history does not say."""

    rule: StoppingRule  # fitted on everything
    costs: Floats  # per hour in which the waiting begins
    at_once: Floats  # buying at the first price there is
    waits: Bools  # it would not have bought in that very hour


def price_path_of(series: PriceSeries) -> PricePath:
    """In dollars per GPU-hour."""
    prices = np.array([np.nan if low is None else low / 1e6 for low in series.lows], float)
    polled = np.asarray(series.polled, bool)
    return PricePath(prices=prices, polled=polled)


def level_of(path: PricePath) -> Floats:
    """The median of the week up to each hour, that hour included; NaN until a day of it is known."""
    found = np.full(len(path.prices), np.nan)
    for at in range(len(found)):
        week = path.prices[max(0, at - LEVEL_HOURS + 1) : at + 1]
        week = week[~np.isnan(week)]
        if len(week) >= _LEVEL_LEAST:
            found[at] = np.median(week)
    return found


def best_stopping_rule(path: PricePath, hours: int, miss: float, cap: float = np.inf) -> EvaluatedRule:
    """The way that cost least out of sample, and what always taking the best one so far came to.

    Args:
        hours: until the deadline.
        miss: what it costs to have none by then, in dollars per GPU-hour.
        cap: nothing dearer is ever bought.
    """
    level = level_of(path)
    path = msgspec.structs.replace(path, prices=np.where(path.prices <= cap, path.prices, np.nan))
    ways = [
        evaluate_rule(path, level, hours, miss),
        evaluate_rule(path, None, hours, miss),
        _at_once(path, hours, miss),
    ]
    costs, waits = np.full(len(level), np.nan), np.zeros(len(level), bool)
    for stretch in _stretches(path):
        best = _best(ways, stretch.start - hours)
        costs[stretch], waits[stretch] = best.costs[stretch], best.waits[stretch]
    rule = _best(ways, len(level)).rule
    return EvaluatedRule(rule=rule, costs=costs, at_once=ways[-1].costs, waits=waits)


def _best(ways: Sequence[EvaluatedRule], until: int) -> EvaluatedRule:
    """By what they cost before; of equally good ones the first."""
    until = max(until, 0)
    known = ~np.isnan([way.costs[:until] for way in ways]).any(axis=0)
    return min(ways, key=lambda way: round(float(way.costs[:until][known].sum()), 6))


def evaluate_rule(path: PricePath, level: Floats | None, hours: int, miss: float) -> EvaluatedRule:
    """A rule of one yardstick, and what one that was fitted on the past alone came to, stretch after stretch."""
    signal = path.prices if level is None else path.prices / level
    costs, waits = np.full(len(signal), np.nan), np.zeros(len(signal), bool)
    for stretch in _stretches(path):
        before = PricePath(prices=path.prices[: stretch.start], polled=path.polled[: stretch.start])
        limits = fit_limits(before, signal[: stretch.start], hours, miss)
        costs[stretch] = rule_costs(path, signal, limits, miss)[stretch]
        waits[stretch] = ~(signal[stretch] <= limits[-1])
    return EvaluatedRule(
        rule=StoppingRule(limits=tuple(fit_limits(path, signal, hours, miss)), relative=level is not None),
        costs=costs,
        at_once=_at_once(path, hours, miss).costs,
        waits=waits & path.polled,
    )


def _at_once(path: PricePath, hours: int, miss: float) -> EvaluatedRule:
    """Buying at the first price there is."""
    limits = (np.inf,) * (hours + 1)
    costs = rule_costs(path, path.prices, limits, miss)
    waits = np.isnan(path.prices) & path.polled
    return EvaluatedRule(rule=StoppingRule(limits=limits, relative=False), costs=costs, at_once=costs, waits=waits)


def _stretches(path: PricePath) -> Iterator[slice]:
    """Stretches to judge a rule on, each after some history (rolling origin; Tashman, 2000)."""
    edges = np.linspace(0, len(path.prices), ORIGINS + 1).astype(int)[1:]
    return (slice(begin, end) for begin, end in pairwise(edges))


def fit_limits(path: PricePath, signal: Floats, hours: int, miss: float) -> list[float]:
    """The limits by backward induction, for 0 to `hours` hours left."""
    order = np.argsort(signal, kind="stable")
    order = order[~np.isnan(signal[order])]
    watched = signal[: max(0, len(signal) - hours)]
    sure = float(np.nanmax(watched)) if (~np.isnan(watched)).any() else -np.inf
    limits = [np.inf]
    costs = _costs_at_the_end(path, miss)
    for _ in range(hours):
        later = _later(costs)
        gains = (path.prices - later)[order]
        limits.append(_cheapest_limit(signal[order], gains, limits[-1], sure))
        costs = np.where(signal <= limits[-1], path.prices, later)
    return limits


def _cheapest_limit(ranked: Floats, gains: Floats, most: float, sure: float) -> float:
    """Buying at or under it adds up to the least.

    Of equally good ones the highest, for a price in hand is sure; but none that was not once watched to its deadline:
    of a price that has just come up nobody knows whether it stays.
    """
    known = ~np.isnan(gains) & (ranked <= most)
    if not known.any():
        return most
    ranked, sums = ranked[known], np.cumsum(gains[known])
    ends = np.append(ranked[1:] > ranked[:-1], True)
    good = ranked[ends & (sums <= sums[ends].min() + _HAIR)]
    watched = good[good <= sure]
    return float(watched[-1] if len(watched) else good[0])


def rule_costs(path: PricePath, signal: Floats, limits: Sequence[float], miss: float) -> Floats:
    """What following a rule comes to, for each hour in which the waiting begins."""
    costs = _costs_at_the_end(path, miss)
    for limit in limits[1:]:
        later = _later(costs)
        costs = np.where(signal <= limit, path.prices, later)
    return costs


def _costs_at_the_end(path: PricePath, miss: float) -> Floats:
    """In the last hour the price is taken as it is; what nobody looked at is not known."""
    return np.where(np.isnan(path.prices), np.where(path.polled, miss, np.nan), path.prices)


def _later(costs: Floats) -> Floats:
    return np.append(costs[1:], np.nan)
