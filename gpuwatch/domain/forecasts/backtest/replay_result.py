"""The result of a replay: the price paid, the time it took, what waiting saved and what it missed. Pure.

Unlike the replay, the result uses the whole history: only hindsight shows what was missed. `sweep_thresholds` replays
one watch at many thresholds: how much longer a lower price takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

import msgspec
import numpy as np

from gpuwatch.domain.forecasts.advice import saving_interval
from gpuwatch.domain.forecasts.backtest.replay import ReplaySettings, ReplayStep, WatchReplay, replay
from gpuwatch.domain.forecasts.backtest.replayed_candidates import WatchCandidates
from gpuwatch.domain.forecasts.backtest.simulated_launches import SimulatedLaunches
from gpuwatch.domain.forecasts.wait_outcomes import Numbers, PollPrices, next_known, wait_outcomes
from gpuwatch.domain.history.market_history import COVERAGE_S, MarketHistory
from gpuwatch.domain.history.nonparametric import kaplan_meier
from gpuwatch.domain.launches.launch import Launch, RefusalReason
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import FIRING_REASONS, DecisionReason, Match
from gpuwatch.domain.watches.watch import Action, Watch

BUDGET_REASONS = frozenset(
    {
        RefusalReason.MAX_USD_HOUR,
        RefusalReason.MAX_USD_DAY,
        RefusalReason.MAX_USD_MONTH,
        RefusalReason.MAX_INSTANCES,
    }
)
_STARTS_EVERY_S = 3600
_DAY_S = 86_400
_LEAST_DAYS = 5
_HOUR = timedelta(hours=1)

SWEPT_SETTING = "max_price"
MAX_STEPS = 200
_EXPECTED = f"expected {SWEPT_SETTING}=FROM:TO:STEP in dollars per GPU-hour, for example {SWEPT_SETTING}=2.0:4.0:0.1"


class CheaperOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A cheaper fitting offer that appeared after one was taken."""

    at: datetime
    usd_gpu_hour: float


class BacktestEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An alert or a launch of the watch."""

    at: datetime
    reason: str
    did: str  # "alert", "ask", "launch", or "refused: " and the reason
    offer: Offer
    usd_hour: float  # the whole offer, commission included
    usd_gpu_hour: float
    waited: timedelta  # since the first poll of the watch
    launched: bool
    refused: RefusalReason | None = None
    cost_usd: float | None = None  # of a launch, up to its end
    hours: float | None = None
    cheaper_later: CheaperOffer | None = None

    @property
    def is_reminder(self) -> bool:
        """Does it only repeat an earlier alert?"""
        return not self.launched and self.reason == DecisionReason.REPEAT_DUE.value

    @property
    def is_beyond_limits(self) -> bool:
        """Had the watch already reached its own limits?"""
        return self.refused in (RefusalReason.MAX_ACTIVE, RefusalReason.MAX_TOTAL, RefusalReason.MAX_PER_DAY)


class WaitStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Results of the watch if it started at the first poll of every hour: the time until it could rent, and the price.

    `starts` = `bought` + `missed` + `unknown`, as `wait_outcomes` defines them; the means are over those bought or
    missed.
    """

    starts: int
    bought: int
    missed: int  # nothing was on offer at the deadline: pays the next offer …
    no_later_offer: int  # … or, in these cases, the highest price in the history
    unknown: int  # no poll at the deadline
    within_deadline: float | None  # share of the counted starts in which the watch could rent in time
    paid_usd_gpu_hour: float | None  # mean
    at_once_usd_gpu_hour: float | None  # mean for the same starts, buying the first available offer
    interval: tuple[float, float] | None  # 95 % of `saved`; None: too few days
    median_s: float | None  # over all starts (Kaplan-Meier); None: more than half were still waiting

    @property
    def counted(self) -> int:
        """The starts with a known outcome."""
        return self.bought + self.missed

    @property
    def is_shown(self) -> bool:
        """Does the interval exclude zero?"""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def saved(self) -> float | None:
        """The share saved compared with buying at once; below 0: waiting was more expensive."""
        return saved_share(self.paid_usd_gpu_hour, self.at_once_usd_gpu_hour)


class BacktestResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one watch would have done."""

    watch_replay: WatchReplay
    since: datetime
    until: datetime
    polls: int
    blind: int
    held: float  # share of the polls at which the watch could have rented
    events: tuple[BacktestEvent, ...]
    launches: int
    fires: int
    budget_refusals: dict[str, int]  # reason → polls with an offer but no money left
    paid_usd_gpu_hour: float | None  # mean of its launches, or its first alert if it does not rent
    at_once_usd_gpu_hour: float | None
    median_usd_gpu_hour: float | None
    cost_usd: float
    waiting: WaitStatistics

    @property
    def first(self) -> BacktestEvent | None:
        """The event that ended the wait: the first launch, or the first alert if the watch does not rent."""
        rents = self.watch_replay.watch.action is Action.LAUNCH
        return next((event for event in self.events if event.launched or not rents), None)

    @property
    def saved_against_at_once(self) -> float | None:
        """The share saved compared with the cheapest fitting offer when the first one was seen."""
        return saved_share(self.paid_usd_gpu_hour, self.at_once_usd_gpu_hour)

    @property
    def saved_against_median(self) -> float | None:
        """The share saved compared with the median price of the cheapest fitting offer."""
        return saved_share(self.paid_usd_gpu_hour, self.median_usd_gpu_hour)

    def track(self) -> tuple[list[datetime], list[float]]:
        """The time of each poll, and the price of the cheapest fitting offer in dollars; NaN: no offer."""
        times = [datetime.fromtimestamp(at_s, UTC) for at_s in self.watch_replay.at_s]
        return times, [price / MICRO if price >= 0 else float("nan") for price in self.watch_replay.cheapest]


def result_of(watch_replay: WatchReplay, simulated: SimulatedLaunches, deadline: timedelta) -> BacktestResult | None:
    """Build the report; None: no poll was sent for this watch."""
    if not watch_replay.at_s:
        return None
    at_s, cheapest = np.asarray(watch_replay.at_s, float), np.asarray(watch_replay.cheapest, float)
    taken = np.asarray(watch_replay.taken, float)
    events = tuple(_events(watch_replay, simulated, deadline, at_s, cheapest))
    takes = [event for event in events if event.launched]
    if watch_replay.watch.action is not Action.LAUNCH:
        takes = list(events[:1])
    return BacktestResult(
        watch_replay=watch_replay,
        since=_moment(at_s[0]),
        until=_moment(at_s[-1]),
        polls=len(at_s),
        blind=watch_replay.blind,
        held=float(np.mean(taken >= 0)),
        events=events,
        launches=sum(event.launched for event in events),
        fires=sum(step.reason in FIRING_REASONS for step in watch_replay.steps),
        budget_refusals={reason: polls for reason, polls in watch_replay.refused.items() if reason in BUDGET_REASONS},
        paid_usd_gpu_hour=_mean_paid(takes),
        at_once_usd_gpu_hour=_first(cheapest),
        median_usd_gpu_hour=_median(at_s, cheapest),
        cost_usd=sum(event.cost_usd or 0.0 for event in events),
        waiting=_waiting(at_s, cheapest, taken, deadline),
    )


def saved_share(paid: float | None, instead: float | None) -> float | None:
    """The share saved; below 0: it was more expensive. None: one of the prices is unknown."""
    return None if paid is None or not instead else 1 - paid / instead


def _events(
    watch_replay: WatchReplay, simulated: SimulatedLaunches, deadline: timedelta, at_s: Numbers, cheapest: Numbers
) -> Iterator[BacktestEvent]:
    def event(step: ReplayStep, match: Match, did: str, launch: Launch | None = None) -> BacktestEvent:
        return BacktestEvent(
            at=step.at,
            reason=step.reason.value,
            did=did,
            refused=None if launch or step.refusal is None else step.refusal.reason,
            offer=match.offer,
            usd_hour=match.price.price_microusd_hour / MICRO,
            usd_gpu_hour=match.price_microusd_gpu_hour / MICRO,
            waited=step.at - _moment(at_s[0]),
            launched=launch is not None,
            cost_usd=simulated.cost_microusd(launch) / MICRO if launch else None,
            hours=simulated.life_of(launch) / _HOUR if launch else None,
            cheaper_later=_later(step.at, match.price_microusd_gpu_hour, deadline, at_s, cheapest),
        )

    for step in watch_replay.steps:
        for launch, match in step.begun:
            yield event(step, match, "launch", simulated.newest(launch))
        if step.reason in FIRING_REASONS and not step.begun and step.best is not None:
            did = f"refused: {step.refusal.reason.value}" if step.refusal else watch_replay.watch.action.value
            yield event(step, step.best, did)


def _later(at: datetime, price: float, deadline: timedelta, at_s: Numbers, cheapest: Numbers) -> CheaperOffer | None:
    """The cheapest offer within the deadline, if it was cheaper than this one."""
    start = at.timestamp()
    first, after = np.searchsorted(at_s, (start, start + deadline.total_seconds()), side="right")
    ahead = cheapest[first:after]
    cheaper = (ahead >= 0) & (ahead < price)
    if not cheaper.any():
        return None
    best = first + int(np.argmin(np.where(cheaper, ahead, np.inf)))
    return CheaperOffer(at=_moment(at_s[best]), usd_gpu_hour=float(cheapest[best]) / MICRO)


def _waiting(at_s: Numbers, cheapest: Numbers, taken: Numbers, deadline: timedelta) -> WaitStatistics:
    """Start at the first poll of every hour. A wait that outlasts the data lasted at least until its end."""
    begun = np.flatnonzero(np.diff(at_s // _STARTS_EVERY_S, prepend=-1.0) > 0)
    polls = PollPrices(at_s=at_s, offered=_or_nan(cheapest), taken=_or_nan(taken), lasts_s=COVERAGE_S)
    found = wait_outcomes(polls, begun, deadline.total_seconds())
    known = found.counted & ~np.isnan(found.paid)  # NaN: there was never an offer
    ahead = next_known(polls.taken)[begun]
    reached = ahead < len(at_s)
    waits = at_s[np.minimum(ahead, len(at_s) - 1)] - found.starts_s
    return WaitStatistics(
        starts=len(begun),
        bought=int(found.bought.sum()),
        missed=int(found.missed.sum()),
        no_later_offer=int(found.no_later_offer.sum()),
        unknown=int(found.unknown.sum()),
        within_deadline=float(found.in_time[found.counted].mean()) if found.counted.any() else None,
        median_s=kaplan_meier(waits.tolist(), reached.tolist()).median_s if reached.any() else None,
        interval=_interval(found.starts_s[known], found.paid[known], found.at_once[known], deadline),
        paid_usd_gpu_hour=_mean(found.paid[known]),
        at_once_usd_gpu_hour=_mean(found.at_once[known]),
    )


def _or_nan(prices: Numbers) -> Numbers:
    """Prices with NaN instead of -1 where nothing was on offer."""
    return np.where(prices >= 0, prices, np.nan)


def _interval(starts: Numbers, paid: Numbers, at_once: Numbers, deadline: timedelta) -> tuple[float, float] | None:
    """Compute the interval with blocks of days longer than the deadline, because neighbouring starts share prices."""
    days = (starts // _DAY_S).astype(int)
    block_days = 1 + -(-int(deadline.total_seconds()) // _DAY_S)
    if len(np.unique(days)) < max(_LEAST_DAYS, 2 * block_days):
        return None
    spent, once = (np.bincount(days - days[0], prices).astype(float) for prices in (paid, at_once))
    return saving_interval(spent, once, block_days, seed=0)


def _median(at_s: Numbers, cheapest: Numbers) -> float | None:
    """Median of the cheapest fitting price by time: each poll counts until the next, at most for three hours."""
    lasts = np.minimum(np.append(np.diff(at_s), COVERAGE_S), COVERAGE_S)
    there = cheapest >= 0
    if not there.any():
        return None
    order = np.argsort(cheapest[there], kind="stable")
    prices, weights = cheapest[there][order], np.cumsum(lasts[there][order])
    return float(prices[np.searchsorted(weights, weights[-1] / 2)]) / MICRO


def _mean_paid(takes: Sequence[BacktestEvent]) -> float | None:
    """The mean price paid, weighted by GPU-hours."""
    if not takes:
        return None
    weights = [event.offer.gpu_count * (event.hours or 1.0) for event in takes]
    return sum(event.usd_gpu_hour * weight for event, weight in zip(takes, weights, strict=True)) / sum(weights)


def _first(cheapest: Numbers) -> float | None:
    """The price when the first fitting offer was seen."""
    there = cheapest[cheapest >= 0]
    return float(there[0]) / MICRO if len(there) else None


def _mean(microusd: Numbers) -> float | None:
    return float(microusd.mean()) / MICRO if len(microusd) else None


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(int(at_s), UTC)


def parse_sweep(text: str) -> tuple[Decimal, ...]:
    """Parse the thresholds of "max_price=2.0:4.0:0.1", both ends included.

    Raises:
        ValueError: the text is not a range of thresholds; the message states what is expected.
    """
    name, _, span = text.partition("=")
    try:
        first, last, step = (Decimal(part) for part in span.split(":"))
    except (ValueError, InvalidOperation):
        raise ValueError(_EXPECTED) from None
    if name.strip() != SWEPT_SETTING or not all(part.is_finite() for part in (first, last, step)):
        raise ValueError(_EXPECTED)
    if not (0 < first <= last <= 1_000_000 and step > 0):
        raise ValueError(f"{_EXPECTED}: above 0, rising")
    steps = int((last - first) / step) + 1
    if steps > MAX_STEPS:
        raise ValueError(f"{steps} steps; expected at most {MAX_STEPS}")
    return tuple(first + step * number for number in range(steps))


def with_threshold(watch: Watch, price: Decimal) -> Watch:
    """Return the watch with this threshold instead of any other."""
    return msgspec.structs.replace(watch, max_price_usd_gpu_hour=price, auto=None, max_job_cost_usd=None, job=None)


def sweep_thresholds(
    watch: Watch,
    found: WatchCandidates,
    market_history: MarketHistory,
    setting: ReplaySettings,
    prices: Sequence[Decimal],
    deadline: timedelta,
) -> Iterator[tuple[Decimal, BacktestResult | None]]:
    """Replay each threshold by itself on the same market.

    Args:
        found: the candidates of the watch at the highest of these prices.
    """
    for price in prices:
        (watch_replay,), simulated = replay([(with_threshold(watch, price), found)], market_history, setting)
        yield price, result_of(watch_replay, simulated, deadline)
