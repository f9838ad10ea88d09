"""Backtests: replay recorded prices through the decisions of watches."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch import providers
from gpuwatch.app.past_prices import load_prices
from gpuwatch.bootstrap.provider_access import is_polled_for, unrentable
from gpuwatch.bootstrap.rules import max_ages
from gpuwatch.domain.analysis.market_history import MarketFilter, MarketHistory
from gpuwatch.domain.analysis.price_series import POLL_LASTS_S
from gpuwatch.domain.backtest.candidates import find_candidates
from gpuwatch.domain.backtest.offers import without_unrecorded_clauses
from gpuwatch.domain.backtest.replay import ReplaySettings, replay
from gpuwatch.domain.backtest.report import result_of
from gpuwatch.domain.backtest.threshold_sweep import sweep_thresholds, with_threshold
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.market.text import clean
from gpuwatch.engine.auto_prices import AutoPrices
from gpuwatch.engine.backtest_waits import BACKTEST_RECOMPUTE_EVERY, BacktestWaits
from gpuwatch.errors import UsageError
from gpuwatch.storage.answer_changes import REFERENCE_DISK_GB

if TYPE_CHECKING:
    from gpuwatch.domain.backtest.candidates import BacktestCandidate
    from gpuwatch.domain.backtest.report import BacktestEvent, BacktestResult
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings

_P = ParamSpec("_P")
_AUTO_HISTORY = timedelta(days=90)
ReportProgress = Callable[[str, int, int], None]  # (what, done, total)


class BacktestPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """The period, and the source of the prices."""

    since: datetime
    until: datetime
    data: Path | None = None  # None: the store
    provider: str | None = None


class BacktestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to evaluate the replay."""

    job: timedelta | None  # how long a launch is needed; None: its `max_runtime`
    deadline: timedelta  # how far ahead a cheaper offer counts as missed
    strict: bool = False  # a clause that the history cannot evaluate is an error


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """The result."""

    results: Sequence[tuple[Watch, BacktestResult | None]]
    ignored: dict[str, tuple[str, ...]]  # watch → clauses that the history cannot evaluate
    source: str
    intervals: int  # prices read
    looks: int
    deadline: timedelta


def _at_rest(work: Callable[_P, Backtest]) -> Callable[_P, Backtest]:
    """Switch the garbage collector off: it would scan half a million small values that stay, again and again."""

    @wraps(work)
    def done(*args: _P.args, **kwargs: _P.kwargs) -> Backtest:
        was_on = gc.isenabled()
        gc.disable()
        try:
            return work(*args, **kwargs)
        finally:
            if was_on:
                gc.enable()

    return done


@_at_rest
def run_backtest(
    settings: Settings, watches: Sequence[Watch], span: BacktestPeriod, terms: BacktestOptions, stage: ReportProgress
) -> Backtest:
    """What these watches would have done together.

    Raises:
        UsageError: the file cannot be used, or `strict` is set and a clause cannot be evaluated.
        StoreError: the store cannot be read.
    """

    market_history = _history(settings, watches, span, stage)
    setting = _with_limits(settings, _setting(settings, terms), watches, span, stage)
    players, ignored = [], {}
    for watch in watches:
        judged, ignored[watch.name] = _judged(watch, market_history, terms)
        players.append((judged, _candidates(judged, market_history, setting, stage)))
    courses, simulated = replay(players, market_history, setting, lambda done, of: stage("replaying", done, of))
    results = [
        (watch, result_of(watch_replay, simulated, terms.deadline))
        for watch, watch_replay in zip(watches, courses, strict=True)
    ]
    return Backtest(
        results=results,
        ignored=ignored,
        source=clean(market_history.source),
        intervals=len(market_history.intervals),
        looks=_looks(market_history),
        deadline=terms.deadline,
    )


@_at_rest
def run_sweep(
    settings: Settings,
    watch: Watch,
    prices: Sequence[Decimal],
    span: BacktestPeriod,
    terms: BacktestOptions,
    stage: ReportProgress,
) -> Backtest:
    """One watch at many thresholds, each on its own. Errors as `run_backtest`."""

    market_history = _history(settings, [watch], span, stage)
    setting = _setting(settings, terms)
    judged, ignored = _judged(watch, market_history, terms)
    found = _candidates(with_threshold(judged, max(prices)), market_history, setting, stage)
    results = []
    for number, (price, result) in enumerate(
        sweep_thresholds(judged, found, market_history, setting, prices, terms.deadline)
    ):
        stage("replaying", number, len(prices))
        results.append((with_threshold(watch, price), result))
    return Backtest(
        results=results,
        ignored={watch.name: ignored},
        source=clean(market_history.source),
        intervals=len(market_history.intervals),
        looks=_looks(market_history),
        deadline=terms.deadline,
    )


def _judged(watch: Watch, market_history: MarketHistory, terms: BacktestOptions) -> tuple[Watch, tuple[str, ...]]:

    judged, ignored = without_unrecorded_clauses(watch, market_history.listings)
    if ignored and terms.strict and market_history.listings:
        raise UsageError(f"watch {watch.name!r}: the history cannot judge {', '.join(ignored)} (--strict)")
    return judged, ignored


def _candidates(
    watch: Watch, market_history: MarketHistory, setting: ReplaySettings, stage: ReportProgress
) -> list[BacktestCandidate]:

    def report(done: int, of: int) -> None:
        stage("judging prices", done, of)

    return find_candidates(watch, market_history, setting.commissions, setting.reference_disk_gb, report)


def _history(
    settings: Settings, watches: Sequence[Watch], span: BacktestPeriod, stage: ReportProgress
) -> MarketHistory:
    """Live prices, and list prices if a watch accepts them."""

    stage("reading", 0, 1)
    gpus = tuple(dict.fromkeys(gpu for watch in watches for gpu in watch.gpu_names))
    scopes = [MarketFilter(gpus=gpus, provider=span.provider)]
    if span.data is None and span.provider is None:
        scopes += [MarketFilter(gpus=gpus, provider=f"{name}:listed") for name in _listing(settings, watches)]
    return _joined([load_prices(settings, scope, span.since, span.until, span.data) for scope in scopes])


def _listing(settings: Settings, watches: Sequence[Watch]) -> list[str]:
    """The providers whose list prices a watch accepts."""

    listing = [name for name in settings.providers if OfferKind.LISTED in providers.info(name).kinds]
    return [name for name in listing if any(is_polled_for(name, watch) and watch.listed for watch in watches)]


def _joined(histories: Sequence[MarketHistory]) -> MarketHistory:

    first, *others = histories
    if not any(market_history.polls for market_history in others):
        return first
    listings, intervals, polls = list(first.listings), list(first.intervals), list(first.polls)
    for market_history in others:
        intervals += [
            interval._replace(listing=interval.listing + len(listings)) for interval in market_history.intervals
        ]
        listings += market_history.listings
        polls += market_history.polls
    intervals.sort(key=lambda interval: (interval.from_s, interval.listing))
    polls.sort(key=lambda poll: poll.at_s)
    return MarketHistory(listings=tuple(listings), intervals=intervals, polls=polls, source=first.source)


def _setting(settings: Settings, terms: BacktestOptions) -> ReplaySettings:

    least = timedelta(seconds=POLL_LASTS_S)  # how long a recorded price counts
    known = {name: providers.info(name).commission for name in providers.names()}
    cannot = unrentable(settings)
    return ReplaySettings(
        commissions=known | {name: provider.commission for name, provider in settings.providers.items()},
        max_age=least,
        max_ages={name: max(age, least) for name, age in max_ages(settings, list(settings.providers)).items()},
        budget=settings.budget,
        zone=ZoneInfo(settings.timezone),
        job=terms.job,
        reference_disk_gb=REFERENCE_DISK_GB,
        able=lambda found: cannot.able(found, dry_run=True),  # without any key: as with one
    )


def _with_limits(
    settings: Settings, setting: ReplaySettings, watches: Sequence[Watch], span: BacktestPeriod, stage: ReportProgress
) -> ReplaySettings:
    """`max_price = "auto"`: the limits that the daemon would have used, from what was known at each moment."""

    auto = [watch for watch in watches if watch.auto is not None]
    if not auto:
        return setting
    longer = msgspec.structs.replace(span, since=span.since - _AUTO_HISTORY)  # what is known when the replay starts
    waits = BacktestWaits(_history(settings, auto, longer, stage), setting.commissions, setting.reference_disk_gb)
    return msgspec.structs.replace(setting, limit=AutoPrices(waits, BACKTEST_RECOMPUTE_EVERY).renew)


def _looks(market_history: MarketHistory) -> int:
    return len({poll.at_s for poll in market_history.polls})


METHOD = (
    # word-check: allow - a value of the JSON
    "replay of the recorded looks through the daemon's decisions; an offer stands until a look misses it; launches run "
    "at once and to their end"
)


WAITING_METHOD = (
    "the same watch, begun at the first look of every hour; median wait by Kaplan and Meier, "
    "95 % interval by a block bootstrap over days"
)


def backtest_json(found: Backtest, is_sweep: bool) -> dict[str, Any]:
    """JSON of `gpuwatch backtest`."""
    known = [result for _, result in found.results if result is not None]
    one = step_json if is_sweep else _watch_json
    return {
        "method": METHOD,
        "source": found.source,
        "samples": found.looks,
        "prices_read": found.intervals,
        "since": rfc3339(min((result.since for result in known), default=None)),
        "until": rfc3339(max((result.until for result in known), default=None)),
        "deadline_s": found.deadline.total_seconds(),
        "not_judged": {name: list(clauses) for name, clauses in found.ignored.items() if clauses},
        "steps" if is_sweep else "watches": [one(watch, result) for watch, result in found.results],
    }


def _watch_json(watch: Watch, result: BacktestResult | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": watch.name,
        "action": watch.action.value,
        "max_price_usd_gpu_hour": float(watch.max_price_usd_gpu_hour),
        "looks": 0 if result is None else result.looks,
    }
    if result is None:
        return found
    first = result.first
    return found | {
        "blind_looks": result.blind,
        "held": result.held,
        "fires": result.fires,
        "launches": result.launches,
        "waited_s": None if first is None else first.waited.total_seconds(),
        **_prices_json(result),
        "cost_usd": result.cost_usd,
        "budget_refusals": result.budget_refusals,
        "waiting": _waiting_json(result),
        "events": [event_json(event) for event in result.events],
    }


def _prices_json(result: BacktestResult) -> dict[str, Any]:
    return {
        "paid_usd_gpu_hour": result.paid_usd_gpu_hour,
        "at_once_usd_gpu_hour": result.at_once_usd_gpu_hour,
        "median_usd_gpu_hour": result.median_usd_gpu_hour,
        "saved_against_at_once": result.saved_against_at_once,
        "saved_against_median": result.saved_against_median,
    }


def _waiting_json(result: BacktestResult) -> dict[str, Any]:
    waiting = result.waiting
    return {
        "method": WAITING_METHOD,
        "starts": waiting.starts,
        "samples": waiting.judged,
        "within_deadline": waiting.within_deadline,
        "median_s": waiting.median_s,
        "paid_usd_gpu_hour": waiting.paid_usd_gpu_hour,
        "at_once_usd_gpu_hour": waiting.at_once_usd_gpu_hour,
        "saved": waiting.saved,
        "saved_interval": waiting.interval,
    }


def event_json(event: BacktestEvent) -> dict[str, Any]:
    """JSON of one event."""
    offer, later = event.offer, event.cheaper_later
    return {
        "at": rfc3339(event.at),
        "did": event.did,
        "reason": event.reason,
        "provider": offer.provider,
        "offer_id": offer.offer_id,
        "machine_id": offer.machine_id,
        "gpu": offer.gpu,
        "gpu_count": offer.gpu_count,
        "spot": offer.spot,
        "region": offer.region,
        "price_usd_hour": event.usd_hour,
        "price_usd_gpu_hour": event.usd_gpu_hour,
        "waited_s": event.waited.total_seconds(),
        "hours": event.hours,
        "cost_usd": event.cost_usd,
        "cheaper_later": None if later is None else {"at": rfc3339(later.at), "price_usd_gpu_hour": later.usd_gpu_hour},
    }


def step_json(watch: Watch, result: BacktestResult | None) -> dict[str, Any]:
    row: dict[str, Any] = {"max_price_usd_gpu_hour": float(watch.max_price_usd_gpu_hour)}
    if result is None:
        return row
    first, waiting = result.first, result.waiting
    return row | {
        "fires": result.fires,
        "launches": result.launches,
        "held": result.held,
        "waited_s": None if first is None else first.waited.total_seconds(),
        **_prices_json(result),
        "starts": waiting.judged,
        "within_deadline": waiting.within_deadline,
        "median_wait_s": waiting.median_s,
        "mean_paid_usd_gpu_hour": waiting.paid_usd_gpu_hour,
        "mean_at_once_usd_gpu_hour": waiting.at_once_usd_gpu_hour,
        "mean_saved": waiting.saved,
        "mean_saved_low": waiting.interval[0] if waiting.interval else None,
        "mean_saved_high": waiting.interval[1] if waiting.interval else None,
    }
