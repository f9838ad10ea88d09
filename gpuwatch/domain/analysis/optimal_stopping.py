"""Buy now or wait, with a deadline: optimal stopping on the empirical paths, and its value out of sample.

A rule is one limit for each number of hours left. Backward induction finds it: with one hour left the price is
compared with the cost of the last hour, with two with the cost of following the rule for one, and so on, each time with
the limit that costs least over all hours of the history (the parametrised boundary of Andersen, 2000, for options that
may be exercised early). It uses whole paths, so that prices which last for days stay so. A limit never falls as the
deadline approaches. Two yardsticks are fitted: the price itself, and the price relative to the median of the past week,
which a market that moved to another level does not mislead. Each is judged on stretches of the history after the ones
it was fitted on, and so is buying at once; the cheapest of the three wins.
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
LEVEL_HOURS = 168  # the level is the median of this many hours up to now …
_MIN_LEVEL_HOURS = 24  # … if this many of them are known
_HAIR = 1e-9


class PricePath(msgspec.Struct, frozen=True, kw_only=True):
    """An hourly series as arrays. `prices`: NaN if nothing was on offer, or without a poll."""

    prices: Floats
    polled: Bools


class StoppingRule(msgspec.Struct, frozen=True, kw_only=True):
    """`limits[k]`: buy at or under it with k hours left; with 0 at any price. In dollars, or relative to the level."""

    limits: tuple[float, ...]
    relative: bool


class EvaluatedRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule cost in hours that it was not fitted on. NaN: the history does not say."""

    rule: StoppingRule  # fitted on the whole history
    costs: Floats  # per hour in which the wait starts
    at_once: Floats  # cost of buying at the first price available
    waits: Bools  # it would not have bought in that hour


def price_path_of(series: PriceSeries) -> PricePath:
    """The path of a series, in dollars per GPU-hour."""
    prices = np.array([np.nan if low is None else low / 1e6 for low in series.lows], float)
    polled = np.asarray(series.polled, bool)
    return PricePath(prices=prices, polled=polled)


def level_of(path: PricePath) -> Floats:
    """The median of the week up to each hour, that hour included; NaN until a day of prices is known."""
    found = np.full(len(path.prices), np.nan)
    for at in range(len(found)):
        week = path.prices[max(0, at - LEVEL_HOURS + 1) : at + 1]
        week = week[~np.isnan(week)]
        if len(week) >= _MIN_LEVEL_HOURS:
            found[at] = np.median(week)
    return found


def best_stopping_rule(path: PricePath, hours: int, miss: float, cap: float = np.inf) -> EvaluatedRule:
    """The rule that cost least out of sample, and the cost of always following the best rule so far.

    Args:
        hours: hours until the deadline.
        miss: the cost of having no GPU by then, in dollars per GPU-hour.
        cap: nothing more expensive is ever bought.
    """
    level = level_of(path)
    path = msgspec.structs.replace(path, prices=np.where(path.prices <= cap, path.prices, np.nan))
    rules = [
        evaluate_rule(path, level, hours, miss),
        evaluate_rule(path, None, hours, miss),
        _at_once(path, hours, miss),
    ]
    costs, waits = np.full(len(level), np.nan), np.zeros(len(level), bool)
    for stretch in _stretches(path):
        best = _best(rules, stretch.start - hours)
        costs[stretch], waits[stretch] = best.costs[stretch], best.waits[stretch]
    rule = _best(rules, len(level)).rule
    return EvaluatedRule(rule=rule, costs=costs, at_once=rules[-1].costs, waits=waits)


def _best(rules: Sequence[EvaluatedRule], until: int) -> EvaluatedRule:
    """The rule that cost least before; the first of equally good ones."""
    until = max(until, 0)
    known = ~np.isnan([rule.costs[:until] for rule in rules]).any(axis=0)
    return min(rules, key=lambda rule: round(float(rule.costs[:until][known].sum()), 6))


def evaluate_rule(path: PricePath, level: Floats | None, hours: int, miss: float) -> EvaluatedRule:
    """The rule of one yardstick, and the cost of rules fitted on the past alone, stretch by stretch."""
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
    """Buying at the first price available."""
    limits = (np.inf,) * (hours + 1)
    costs = rule_costs(path, path.prices, limits, miss)
    waits = np.isnan(path.prices) & path.polled
    return EvaluatedRule(rule=StoppingRule(limits=limits, relative=False), costs=costs, at_once=costs, waits=waits)


def _stretches(path: PricePath) -> Iterator[slice]:
    """Stretches to judge a rule on, each after some history (rolling origin; Tashman, 2000)."""
    edges = np.linspace(0, len(path.prices), ORIGINS + 1).astype(int)[1:]
    return (slice(begin, end) for begin, end in pairwise(edges))


def fit_limits(path: PricePath, signal: Floats, hours: int, miss: float) -> list[float]:
    """Find the limits by backward induction, for 0 to `hours` hours left."""
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
    """The limit with the lowest total cost.

    Of equally good limits the highest, because a price in hand is certain; but no limit that was never observed up to a
    deadline: nobody knows yet whether a price that has just appeared stays.
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
    """The cost of following a rule, for each hour in which the wait starts."""
    costs = _costs_at_the_end(path, miss)
    for limit in limits[1:]:
        later = _later(costs)
        costs = np.where(signal <= limit, path.prices, later)
    return costs


def _costs_at_the_end(path: PricePath, miss: float) -> Floats:
    """In the last hour any price is accepted; hours without a poll are unknown."""
    return np.where(np.isnan(path.prices), np.where(path.polled, miss, np.nan), path.prices)


def _later(costs: Floats) -> Floats:
    return np.append(costs[1:], np.nan)
