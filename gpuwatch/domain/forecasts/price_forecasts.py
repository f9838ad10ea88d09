"""Forecasts of `advise` and `max_price = "auto"`, their outcomes, and the record of both. Pure.

A forecast is judged by the prices between the time it was made and its deadline: bought, missed, or unknown because no
poll covers the deadline. `forecast_scoring` computes the outcomes; the values live here, so that a daemon that makes no
forecasts does not load numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.watches.watch import SpotPolicy, Watch

LEAST_INDEPENDENT = 8  # forecasts that do not overlap, needed before the record changes anything
_PRIOR = 8  # weight of the prior: a short record is averaged with this many fulfilled forecasts
_SPOT = {SpotPolicy.NO: False, SpotPolicy.ONLY: True, SpotPolicy.ANY: None, SpotPolicy.FIRST: None}
_OPTIMISED = "optimal stopping"  # prefix of the names of its rules
_WON = "it cost less than the fixed median on unseen days"
RULE_TEXTS = {  # keys: values of `RuleKind`, whose module loads numpy
    "fixed median": ("a fixed limit at the median of the history; no rule was shown to do better on unseen days"),
    "buy at once": "buy immediately; no waiting did better on unseen days",
    "optimal stopping": f"optimal stopping; {_WON}",
    "optimal stopping, relative to the median of the week": (
        f"optimal stopping, relative to the median of the week; {_WON}"
    ),
}


class ForecastSource(StrEnum):
    """What made the forecast."""

    ADVISE = "advise"
    AUTO = "auto"


class ForecastOutcome(StrEnum):
    """The outcome of the wait, as `wait_outcomes` defines it."""

    BOUGHT = "bought"
    MISSED = "missed"
    UNKNOWN = "unknown"


class PriceForecast(msgspec.Struct, frozen=True, kw_only=True):
    """One forecast. Dollars per GPU-hour, commission included.

    Attributes:
        scope: the part of the market; for a watch: its GPUs, counts and rental type.
        limits_usd: index: whole hours left, or whole steps of `step_h` hours. None: any price.
        median_usd: the limit of the fixed median, the simple rule for comparison.
        reached: predicted share of waits → the price that they reach before the deadline.
        saving_share: the share that waiting saves compared with buying at once; only if the forecast advises a wait.
        cap_usd: nothing more expensive is bought, and a miss costs it; None: a miss pays for the next offer.
    """

    forecast_id: str
    source: ForecastSource
    made_at: datetime
    due_at: datetime
    scope: MarketFilter
    watch: str | None
    rule: str
    verdict: str | None
    now_usd: float | None
    limits_usd: tuple[float | None, ...]
    median_usd: float | None
    reached: tuple[tuple[float, float | None], ...] = ()
    saving_share: float | None = None
    saving_low: float | None = None
    saving_high: float | None = None
    cap_usd: float | None = None
    step_h: int = 1

    @property
    def steps(self) -> int:
        """Whole hours, or steps of a slow market, from the forecast to its deadline."""
        return len(self.limits_usd) - 1

    @property
    def hours(self) -> int:
        """Hours from the forecast to its deadline."""
        return self.steps * self.step_h


class ForecastScore(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a forecast. Prices are None if it is unknown; `lowest_usd` also if nothing was on offer."""

    outcome: ForecastOutcome
    paid_usd: float | None = None
    at_once_usd: float | None = None
    median_paid_usd: float | None = None
    lowest_usd: float | None = None


def scope_of(watch: Watch) -> MarketFilter:
    """The part of the market that a watch is about."""
    return MarketFilter(
        gpus=watch.gpu_names,
        gpu_count_min=watch.gpu_count_min,
        gpu_count_max=watch.gpu_count_max,
        spot=_SPOT[watch.spot],
    )


# --- the record -------------------------------------------------------------------------------------------------------


class ShareCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the forecasts "this share of waits reaches this price" came true."""

    stated: float
    reached: int
    counted: int


class PriceComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The amount paid, compared with another rule on the same waits: sums of dollars per GPU-hour."""

    paid_usd: float
    other_usd: float
    counted: int

    @property
    def saved(self) -> float | None:
        """The share saved; below 0: it cost more. None: there is nothing to compare."""
        return 1 - self.paid_usd / self.other_usd if self.counted and self.other_usd else None


class ForecastRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How the forecasts of one source came true.

    Attributes:
        open: forecasts whose outcome is not known yet.
        unknown: forecasts without a poll at their deadline; they count nowhere.
        independent: counted forecasts that do not overlap another one of the same part of the market.
        promised: the mean predicted saving of waits with a known outcome; None: no saving was predicted.
        realised: the share that those waits saved, compared with buying at once.
        within: how many of the predicted 95 % ranges of a single saving contained it.
        optimised: only the waits by optimal stopping, compared with the fixed median.
    """

    made: int
    open: int
    unknown: int
    bought: int
    missed: int
    independent: int
    calibration: tuple[ShareCalibration, ...]
    promised: float | None
    realised: float | None
    savings: int
    within: int
    ranges: int
    at_once: PriceComparison
    median: PriceComparison
    optimised: PriceComparison
    optimised_independent: int

    @property
    def shrink(self) -> float:
        """The factor for a predicted saving, from 0 to 1; 1 until enough forecasts are scored."""
        if self.independent < LEAST_INDEPENDENT or not self.promised or self.realised is None:
            return 1.0
        kept = max(0.0, min(1.0, self.realised / self.promised)) if self.promised > 0 else 1.0
        return (kept * self.independent + _PRIOR) / (self.independent + _PRIOR)

    @property
    def trusts_optimal_stopping(self) -> bool:
        """False if, by this record, it paid more than the fixed median would have."""
        saved = self.optimised.saved
        return saved is None or self.optimised_independent < LEAST_INDEPENDENT or saved >= 0


Scored = tuple[PriceForecast, ForecastScore | None]


def forecast_record(found: Iterable[Scored]) -> ForecastRecord:
    """Compute the record of these forecasts."""
    rows = list(found)
    known = [(made, one) for made, one in rows if one is not None and one.outcome is not ForecastOutcome.UNKNOWN]
    promises = [(made, one) for made, one in known if made.saving_share is not None]
    ranges = [
        (made.saving_low, made.saving_high, 1 - _usd(one.paid_usd) / _usd(one.at_once_usd))
        for made, one in promises
        if made.saving_low is not None and made.saving_high is not None
    ]
    optimised = [(made, one) for made, one in known if made.rule.startswith(_OPTIMISED)]
    once = _compared(promises, lambda one: one.at_once_usd)
    return ForecastRecord(
        made=len(rows),
        open=sum(one is None for _, one in rows),
        unknown=sum(one is not None and one.outcome is ForecastOutcome.UNKNOWN for _, one in rows),
        bought=sum(one.outcome is ForecastOutcome.BOUGHT for _, one in known),
        missed=sum(one.outcome is ForecastOutcome.MISSED for _, one in known),
        independent=_independent(known),
        calibration=tuple(_calibration(known)),
        promised=sum(made.saving_share or 0.0 for made, _ in promises) / len(promises) if promises else None,
        realised=once.saved,
        savings=len(promises),
        within=sum(low <= saved <= high for low, high, saved in ranges),
        ranges=len(ranges),
        at_once=_compared(known, lambda one: one.at_once_usd),
        median=_compared(known, lambda one: one.median_paid_usd),
        optimised=_compared(optimised, lambda one: one.median_paid_usd),
        optimised_independent=_independent(optimised),
    )


def _usd(value: float | None) -> float:
    return math.nan if value is None else value


def _calibration(known: Sequence[tuple[PriceForecast, ForecastScore]]) -> Iterable[ShareCalibration]:
    shares = sorted({share for made, _ in known for share, price in made.reached if price is not None})
    for stated in shares:
        prices = [(dict(made.reached).get(stated), one.lowest_usd) for made, one in known]
        judged = [lowest is not None and lowest <= price for price, lowest in prices if price is not None]
        yield ShareCalibration(stated=stated, reached=sum(judged), counted=len(judged))


def _compared(
    known: Sequence[tuple[PriceForecast, ForecastScore]], other: Callable[[ForecastScore], float | None]
) -> PriceComparison:
    pairs = [(one.paid_usd, other(one)) for _, one in known]
    both = [(paid, else_usd) for paid, else_usd in pairs if paid is not None and else_usd is not None]
    return PriceComparison(
        paid_usd=sum(paid for paid, _ in both), other_usd=sum(else_usd for _, else_usd in both), counted=len(both)
    )


def _independent(known: Sequence[tuple[PriceForecast, ForecastScore]]) -> int:
    """The number of forecasts that do not overlap: simultaneous waits in the same market see the same prices."""
    free_from: dict[tuple[str | None, MarketFilter], datetime] = {}
    count = 0
    for made, _ in sorted(known, key=lambda row: row[0].due_at):
        key = (made.watch, made.scope)
        if key not in free_from or made.made_at >= free_from[key]:
            free_from[key] = made.due_at
            count += 1
    return count
