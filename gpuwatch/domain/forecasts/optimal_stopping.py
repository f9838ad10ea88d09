"""Buy now or wait, with a deadline: optimal stopping on the empirical paths. Pure.

Rules: a rule is one limit for each number of hours left. Backward induction finds the limits. With one hour left, the
price is compared with the cost of the last hour; with two, with the cost of following the rule for one hour; and so on.
Each limit is the one that costs least over all hours of the history (the parametrised boundary of Andersen, 2000, for
options with early exercise). Whole paths are used, so that prices that last for days stay so. A limit never falls as
the deadline approaches. Rules are fitted on the price itself and on the price relative to the median of the past week;
a market that moves to another price level does not mislead the second.

Two simple rules compete with them: a fixed limit at the median of the history, and buying at once. Each rule is judged
on parts of the history after the part it was fitted on, by the outcomes of its waits (`wait_outcomes`). The cheapest
rule is used; as long as too few days show which one that is, it is the fixed median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby, pairwise

import msgspec
import numpy as np

from gpuwatch.domain.forecasts.wait_outcomes import Numbers, next_price
from gpuwatch.domain.history.poll_timeline import Flags
from gpuwatch.domain.history.price_series import PriceSeries

METHOD = (
    "optimal stopping by backward induction on the empirical paths (Andersen, 2000), a fixed median and buying at "
    "once, compared by rolling origin"
)
ORIGINS = 6
LEVEL_HOURS = 168  # the level is the median of this many hours up to now …
_MIN_LEVEL_HOURS = 24  # … if this many of them are known
_WEEKS_AT_ONCE = 1024  # sorted together: 1.4 MB
_HAIR = 1e-9
_DAY_H = 24
_LEAST_BLOCKS = 2  # blocks of days that a comparison needs


class RuleKind(StrEnum):
    """How the limits of a rule are found."""

    MEDIAN = "fixed median"
    AT_ONCE = "buy at once"
    OPTIMAL = "optimal stopping"
    OPTIMAL_RELATIVE = "optimal stopping, relative to the median of the week"


class PricePath(msgspec.Struct, frozen=True, kw_only=True):
    """A series as arrays, by the hour or by the step of a slow market.

    `prices`: NaN if nothing was on offer, or without a poll. `day`: entries in a day, or 1.
    """

    prices: Numbers
    polled: Flags
    day: int = 24


class StoppingRule(msgspec.Struct, frozen=True, kw_only=True):
    """`limits[k]`: buy at or under it with k hours left; with 0, at any price. In dollars, or relative to the level."""

    limits: tuple[float, ...]
    relative: bool


class EvaluatedRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule cost in hours that it was not fitted on. NaN: unknown from the history."""

    kind: RuleKind
    fitted: Callable[[int], Sequence[float]]  # its limits, by the number of hours that they are fitted on
    costs: Numbers  # by the hour in which the wait starts
    waits: Callable[[slice], Flags]  # the hours of a stretch in which it would not have bought
    missed: Flags  # nothing was on offer at the deadline, and the rule had not bought before

    @property
    def rule(self) -> StoppingRule:
        """The rule fitted on the whole history, anew each time."""
        return StoppingRule(limits=tuple(self.fitted(len(self.costs))), relative=self.kind is RuleKind.OPTIMAL_RELATIVE)


class ChosenRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule that won, fitted on the whole history."""

    kind: RuleKind
    rule: StoppingRule


class BestRule(ChosenRule, frozen=True, kw_only=True):
    """The same, with what following the best one so far cost, and buying at once."""

    costs: Numbers  # these as in `EvaluatedRule`
    waits: Flags
    missed: Flags
    at_once: Numbers


def price_path_of(series: PriceSeries) -> PricePath:
    """The path of a series, in dollars per GPU-hour."""
    prices = np.array([np.nan if low is None else low / 1e6 for low in series.lows], float)
    polled = np.asarray(series.polled, bool)
    return PricePath(prices=prices, polled=polled, day=max(1, _DAY_H // series.step_h))


def level_of(path: PricePath) -> Numbers:
    """The median of the week up to and including each hour; NaN until a day of prices is known."""
    found = np.full(len(path.prices), np.nan)
    padded = np.concatenate((np.full(LEVEL_HOURS, np.nan), path.prices))
    weeks = np.lib.stride_tricks.sliding_window_view(padded, LEVEL_HOURS)[1:]
    for begin in range(0, len(found), _WEEKS_AT_ONCE):
        ranked = np.sort(weeks[begin : begin + _WEEKS_AT_ONCE], axis=1)  # NaN last
        known = (~np.isnan(ranked)).sum(axis=1)
        rows = np.flatnonzero(known >= _MIN_LEVEL_HOURS)
        counts = known[rows]
        found[begin + rows] = (ranked[rows, (counts - 1) // 2] + ranked[rows, counts // 2]) / 2
    return found


def best_stopping_rule(
    path: PricePath, hours: int, miss: float | None = None, cap: float = np.inf, *, is_simple: bool = False
) -> BestRule:
    """The rule that won out of sample, and the cost of always following the rule that was best so far.

    Args:
        hours: hours until the deadline.
        miss: the cost of having no GPU by then, in dollars per GPU-hour; None: the price of the next offer.
        cap: nothing more expensive is ever bought.
        is_simple: consider only the simple rules, because optimal stopping has done worse than the fixed median.
    """
    rules, count = _evaluated_rules(path, hours, miss, cap, is_simple=is_simple), len(path.prices)
    costs = np.full(count, np.nan)
    waits, missed = np.zeros(count, bool), np.zeros(count, bool)
    for stretch in _stretches(path):
        best = best_so_far(rules, stretch.start - hours, hours, path.day)
        for found, part in ((costs, best.costs[stretch]), (waits, best.waits(stretch)), (missed, best.missed[stretch])):
            found[stretch] = part
    best = best_so_far(rules, count, hours, path.day)
    return BestRule(kind=best.kind, rule=best.rule, costs=costs, waits=waits, missed=missed, at_once=rules[1].costs)


def chosen_rule(path: PricePath, hours: int, miss: float, cap: float, *, is_simple: bool) -> ChosenRule:
    """The rule that won alone; arguments as in `best_stopping_rule`."""
    rules = _evaluated_rules(path, hours, miss, cap, is_simple=is_simple)
    best = best_so_far(rules, len(path.prices), hours, path.day)
    return ChosenRule(kind=best.kind, rule=best.rule)


def _evaluated_rules(
    path: PricePath, hours: int, miss: float | None, cap: float, *, is_simple: bool
) -> list[EvaluatedRule]:
    level = level_of(path)
    path = msgspec.structs.replace(path, prices=np.where(path.prices <= cap, path.prices, np.nan))
    rules = [_fixed_median(path, hours, miss), _at_once(path, hours, miss)]
    if not is_simple:
        rules.append(evaluate_rule(path, None, hours, miss))
    if not is_simple and path.day == _DAY_H:  # a slow market has too few prices per week
        rules.append(evaluate_rule(path, level, hours, miss))
    return rules


def best_so_far(rules: Sequence[EvaluatedRule], until: int, hours: int, day: int = _DAY_H) -> EvaluatedRule:
    """The rule whose waits cost least before an hour; the first one in case of a tie or too little data.

    Neighbouring waits share prices, so each block of days longer than the deadline counts once.
    """
    until = max(until, 0)
    costs = np.array([rule.costs[:until] for rule in rules])
    known = ~np.isnan(costs).any(axis=0)
    block = day * (1 + -(-hours // day))
    blocks = np.unique(np.arange(until)[known] // block, return_inverse=True)[1]
    if len(blocks) == 0 or blocks.max() + 1 < _LEAST_BLOCKS:
        return rules[0]
    means = [float((np.bincount(blocks, cost) / np.bincount(blocks)).mean()) for cost in costs[:, known]]
    return rules[means.index(min(means, key=lambda mean: round(mean, 6)))]


def evaluate_rule(path: PricePath, level: Numbers | None, hours: int, miss: float | None) -> EvaluatedRule:
    """The rule for one kind of price, and the cost of rules fitted on the past only, stretch by stretch."""
    signal = path.prices if level is None else path.prices / level

    def fitted(until: int) -> Sequence[float]:
        before = msgspec.structs.replace(path, prices=path.prices[:until], polled=path.polled[:until])
        return fit_limits(before, signal[:until], hours, miss)

    kind = RuleKind.OPTIMAL if level is None else RuleKind.OPTIMAL_RELATIVE
    return _judged(path, signal, fitted, kind, hours, miss)


def _fixed_median(path: PricePath, hours: int, miss: float | None) -> EvaluatedRule:
    """One limit: the median of the hourly lows so far; any price at the deadline."""

    def fitted(until: int) -> Sequence[float]:
        before = path.prices[:until]
        median = float(np.nanmedian(before)) if (~np.isnan(before)).any() else np.inf
        return [np.inf, *[median] * hours]

    return _judged(path, path.prices, fitted, RuleKind.MEDIAN, hours, miss)


def _at_once(path: PricePath, hours: int, miss: float | None) -> EvaluatedRule:
    """Buying at the first price available."""
    return _judged(path, path.prices, lambda _: (np.inf,) * (hours + 1), RuleKind.AT_ONCE, hours, miss)


def _judged(
    path: PricePath,
    signal: Numbers,
    fitted: Callable[[int], Sequence[float]],
    kind: RuleKind,
    hours: int,
    miss: float | None,
) -> EvaluatedRule:
    """Apply the limits fitted on the hours before each stretch to it, unless no outcome there is known."""
    costs, missed = np.full(len(signal), np.nan), np.zeros(len(signal), bool)
    firsts: dict[int, float] = {}  # stretch → the limit with all hours left
    ends = np.stack([_costs_at_the_end(path, miss), _costs_at_the_end(path, np.inf)])
    for stretch in _stretches(path):
        until = slice(stretch.start, stretch.stop + hours)  # waits that start in the stretch end in these hours
        if np.isnan(ends[:, until][:, hours:]).all():
            continue
        limits = fitted(stretch.start)
        firsts[stretch.start] = limits[-1]
        followed = _followed(path.prices[until], signal[until], limits, ends[:, until])
        costs[stretch] = followed[0, : stretch.stop - stretch.start]
        missed[stretch] = np.isinf(followed[1, : stretch.stop - stretch.start])

    def waits(stretch: slice) -> Flags:
        first = firsts[stretch.start] if stretch.start in firsts else fitted(stretch.start)[-1]
        return ~(signal[stretch] <= first) & path.polled[stretch]

    return EvaluatedRule(kind=kind, fitted=fitted, costs=costs, waits=waits, missed=missed)


def _stretches(path: PricePath) -> Iterator[slice]:
    """The stretches on which a rule is judged, each after some history (rolling origin; Tashman, 2000)."""
    edges = np.linspace(0, len(path.prices), ORIGINS + 1).astype(int)[1:]
    return (slice(begin, end) for begin, end in pairwise(edges))


def fit_limits(path: PricePath, signal: Numbers, hours: int, miss: float | None) -> list[float]:
    """Find the limits by backward induction, for 0 to `hours` hours left."""
    order = np.argsort(signal, kind="stable")
    order = order[~np.isnan(signal[order])]
    watched = signal[: max(0, len(signal) - hours)]
    sure = float(np.nanmax(watched)) if (~np.isnan(watched)).any() else -np.inf
    limits = [np.inf]
    ranked, prices = signal[order], path.prices[order]
    costs = _extended(_costs_at_the_end(path, miss), hours)
    for waited in range(1, hours + 1):
        if not len(order) or ranked[0] == limits[-1]:  # only one price is left, and it stays the limit
            return limits + limits[-1:] * (hours + 1 - waited)
        hours_left = order + waited
        later = costs[hours_left]
        gains = prices - later
        known = gains == gains  # noqa: PLR0124 - NaN is not
        limits.append(_cheapest_limit(ranked, gains, known, limits[-1], sure))
        np.copyto(later, prices, where=known)
        bought = int(ranked.searchsorted(limits[-1], side="right"))  # limits never rise: the rest is done
        costs[hours_left[:bought]] = later[:bought]
        if bought < len(order):
            order, ranked, prices = order[:bought], ranked[:bought], prices[:bought]
    return limits


def _cheapest_limit(ranked: Numbers, gains: Numbers, known: Flags, most: float, sure: float) -> float:
    """The limit with the lowest total cost, of prices that are at most `most`.

    Of equally good limits it is the highest, because a price in hand is certain. But it is not a limit that was never
    observed until a deadline: nobody knows yet whether a price that has just appeared lasts.

    Args:
        ranked: rising.
    """
    count = np.count_nonzero(known)
    if not count:
        return most
    if count < len(known):
        ranked, gains = ranked[known], gains[known]
    sums = gains.cumsum()
    ends = np.empty(count, bool)
    np.greater(ranked[1:], ranked[:-1], out=ends[:-1])
    ends[-1] = True
    good = ranked[ends & (sums <= np.minimum.reduce(sums[ends]) + _HAIR)]
    watched = int(good.searchsorted(sure, side="right"))
    return float(good[max(watched - 1, 0)])


def rule_costs(path: PricePath, signal: Numbers, limits: Sequence[float], miss: float | None) -> Numbers:
    """The cost of following a rule, by the hour in which the wait starts; NaN: no poll at the deadline."""
    return _followed(path.prices, signal, limits, _costs_at_the_end(path, miss))


def _followed(prices: Numbers, signal: Numbers, limits: Sequence[float], ends: Numbers) -> Numbers:
    """The costs with all hours left, from those with none left; each row of `ends` for itself."""
    hours, count = len(limits) - 1, len(prices)
    costs = _extended(ends, hours)[..., hours:]
    starts, bought = np.arange(count), np.full(count, count)  # bought: in which hour
    for limit, few, many in _levels(limits):  # the fewest hours left first: an earlier hour overrides a later one
        places = np.append(np.where(signal <= limit, starts, count), count)
        following = np.minimum.accumulate(places[::-1])[::-1][hours - many : count]
        buys = following <= starts[: len(following)] + (hours - few)
        np.copyto(bought[: len(following)], following, where=buys)
    # the outcome of buying is unknown, too, if that at the deadline is
    is_bought = ~np.isnan(costs) & (bought < count)
    np.copyto(costs, prices[np.minimum(bought, count - 1)], where=is_bought)
    return costs


def _levels(limits: Sequence[float]) -> Iterator[tuple[float, int, int]]:
    """Each limit, and with how many hours left it applies: from, to."""
    left = 1
    for limit, same in groupby(limits[1:]):
        few, left = left, left + len(tuple(same))
        yield limit, few, left - 1


def _extended(ends: Numbers, hours: int) -> Numbers:
    """The costs with none left, and room for those with more hours left: each hour more begins one entry later."""
    unknown = np.full((*ends.shape[:-1], hours), np.nan)
    return np.concatenate((ends, unknown), axis=-1)


def _costs_at_the_end(path: PricePath, miss: float | None) -> Numbers:
    """The last hour accepts any price. Without an offer it is a miss; without a poll the result is unknown."""
    of_a_miss = next_price(path.prices)[0] if miss is None else miss
    return np.where(np.isnan(path.prices), np.where(path.polled, of_a_miss, np.nan), path.prices)
