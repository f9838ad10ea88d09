"""Backtests: replay recorded prices through the decisions of watches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwatch import providers
from gpuwatch.app.history.past_prices import gc_paused, load_prices
from gpuwatch.app.watches.watch_selection import GPU_AND_PRICE, select_watches, settings_with_rule
from gpuwatch.bootstrap.provider_access import is_polled_for, not_rentable
from gpuwatch.bootstrap.rules import all_commissions, max_ages
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.forecasts.backtest.replay import ReplaySettings, replay
from gpuwatch.domain.forecasts.backtest.replay_result import result_of, sweep_thresholds, with_threshold
from gpuwatch.domain.forecasts.backtest.replayed_candidates import find_candidates, fitting_series
from gpuwatch.domain.forecasts.backtest.replayed_offers import without_unrecorded_clauses
from gpuwatch.domain.history.market_history import (
    COVERAGE_S,
    MarketFilter,
    MarketHistory,
    MarketIntervals,
    interval_columns,
)
from gpuwatch.domain.history.market_polls import joined_polls, poll_times
from gpuwatch.domain.market.money import REFERENCE_DISK_GB
from gpuwatch.domain.market.offer import ListedOffer, OfferKind, clean
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.forecasts.auto_limits import BACKTEST_RECOMPUTE_EVERY, AutoPrices, BacktestWaits
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.forecasts.backtest.replay_result import BacktestResult
    from gpuwatch.domain.forecasts.backtest.replayed_candidates import WatchCandidates
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings

Seconds = NDArray[np.uint32]  # since 1970, before 2106

_DAY_S = 86_400.0
_AUTO_HISTORY = timedelta(days=90)
ReportProgress = Callable[[str, int, int], None]  # (what, done, total)


class BacktestRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `gpuwatch forecasts backtest`: watches or a rule instead of them, prices, evaluation."""

    names: tuple[str, ...]  # watch names; empty: all
    gpu: tuple[str, ...]  # a rule instead of the watches: its GPUs, and the options down to `max_runtime_s`
    max_price: str | None
    count: str | None
    spot: str | None
    action: str | None
    max_runtime_s: float | None
    thresholds: tuple[Decimal, ...]  # test one watch at each threshold
    since: datetime
    until: datetime
    data: Path | None  # None: the store
    provider: str | None
    job_s: float | None  # how long a launch is needed; None: its `max_runtime`
    deadline_s: float | None  # how far ahead a cheaper offer counts as missed; None: a day
    strict: bool  # a clause that the history cannot evaluate is an error

    @property
    def deadline(self) -> timedelta:
        """How far ahead a cheaper offer counts as missed."""
        return timedelta(seconds=self.deadline_s or _DAY_S)


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """The result; for a sweep, one entry per threshold."""

    results: Sequence[tuple[Watch, BacktestResult | None]]
    ignored: dict[str, tuple[str, ...]]  # watch → clauses that the history cannot evaluate
    source: str
    intervals: int  # number of prices read
    polls: int
    deadline: timedelta


def backtested_watches(request: BacktestRequest, config: str | None) -> tuple[Settings, Sequence[Watch]]:
    """The settings, and the watches of the request.

    Raises:
        UsageError: the request is contradictory, or a watch is unknown.
        SettingsError: the settings are invalid.
    """
    if request.gpu:
        return _with_rule(request, config)
    of_rule = {
        "--max-price": request.max_price,
        "--action": request.action,
        "--max-runtime": request.max_runtime_s,
        "--count": request.count,
        "--spot": request.spot,
    }
    if used := [name for name, value in of_rule.items() if value is not None]:
        raise UsageError(f"{' and '.join(used)}: only with --gpu; a watch has its own settings")
    settings = load_settings(config)
    watches = select_watches(settings, request.names)
    if request.thresholds and len(watches) > 1:
        raise UsageError(f"--sweep requires one watch: {', '.join(watch.name for watch in watches)}")
    return settings, watches


def _with_rule(request: BacktestRequest, config: str | None) -> tuple[Settings, Sequence[Watch]]:
    if request.names:
        raise UsageError("use either a watch name or --gpu")
    max_price = request.max_price or (str(max(request.thresholds)) if request.thresholds else None)
    if max_price is None:
        raise UsageError(GPU_AND_PRICE)
    settings = settings_with_rule(
        request.gpu,
        max_price,
        count=request.count,
        spot=request.spot,
        config=config,
        action=request.action,
        max_runtime_s=request.max_runtime_s,
    )
    return settings, settings.watches


@gc_paused()
def run_backtest(
    settings: Settings, watches: Sequence[Watch], request: BacktestRequest, stage: ReportProgress
) -> Backtest:
    """What these watches would have done together; with thresholds, what one watch would have done at each of them.

    Raises:
        UsageError: the file cannot be used, or `strict` is set and a clause cannot be evaluated.
        StoreError: the store cannot be read.
    """
    setting, listing = _setting(settings, request), _listing(settings, watches)
    markets, polled_s = [], np.empty(0, np.uint32)
    results: list[tuple[Watch, BacktestResult | None]] = []
    for group in _groups(watches, request):
        market = _judged_market(_history(settings, group, listing, request, stage), group, setting, request)
        auto = [judged for _, judged, _ in market.rules if judged.auto is not None]
        if request.thresholds:
            results += _replayed_thresholds(market, setting, request, stage)
        else:
            limits = _with_limits(settings, setting, auto, watches, request, stage) if auto else setting
            results += _replayed(market, limits, request, stage)
        polled_s = _with_seconds(polled_s, market.history)
        # before the next market is read
        market = market._replace(candidates=(), history=msgspec.structs.replace(market.history, polls=()))
        markets.append(market)
    places = {watch.name: place for place, watch in enumerate(watches)}
    results.sort(key=lambda result: places[result[0].name])
    ignored = {watch.name: clauses for market in markets for watch, _, clauses in market.rules}
    prices = {gpu: count for market in markets for gpu, count in market.prices.items()}
    return Backtest(
        results=results,
        ignored={watch.name: ignored[watch.name] for watch in watches},
        source=clean(markets[0].history.source),
        intervals=sum(prices.values()),
        polls=len(polled_s),
        deadline=request.deadline,
    )


class _JudgedMarket(NamedTuple):
    """What a replay needs of a market: its polls, and the prices that fit each watch, so that the others are freed."""

    rules: Sequence[tuple[Watch, Watch, tuple[str, ...]]]  # as set; without the clauses that the history cannot judge
    candidates: Sequence[WatchCandidates]  # of each of these watches
    history: MarketHistory  # without prices
    prices: Mapping[str, int]  # GPU → number of prices read


def _groups(watches: Sequence[Watch], request: BacktestRequest) -> list[list[Watch]]:
    """The watches that are replayed together: one history after the other takes the least memory.

    Those that rent share a budget. A file is read whole, and `strict` is about all that was read.
    """
    groups: dict[tuple[str, ...], list[Watch]] = {}
    for watch in watches:
        is_together = watch.action is Action.LAUNCH or request.data is not None or request.strict
        groups.setdefault(() if is_together else watch.gpu_names, []).append(watch)
    return list(groups.values())


def _judged_market(
    history: MarketHistory,
    watches: Sequence[Watch],
    setting: ReplaySettings,
    request: BacktestRequest,
) -> _JudgedMarket:
    rules = [(watch, *_with_judged_rule(watch, history, request)) for watch in watches]
    highest = max(request.thresholds, default=None)
    wide = [judged if highest is None else with_threshold(judged, highest) for _, judged, _ in rules]
    return _JudgedMarket(
        rules=rules,
        candidates=[
            find_candidates(judged, history, setting.commissions, setting.reference_disk_gb) for judged in wide
        ],
        history=msgspec.structs.replace(history, listings=(), intervals=()),
        prices=_prices_by_gpu(history),
    )


def _prices_by_gpu(history: MarketHistory) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for listing, count in Counter(interval_columns(history.intervals).listing).items():
        found[history.listings[listing].gpu] += count
    return found


def _with_seconds(polled_s: Seconds, history: MarketHistory) -> Seconds:
    """The seconds of these and of a history's polls, each once. Sorted, because `np.unique` takes far more memory."""
    found = np.concatenate((polled_s, np.asarray(poll_times(history.polls), np.uint32)))
    found.sort()
    is_last = np.append(found[1:] != found[:-1], True)[: len(found)]
    return np.compress(is_last, found)


def _replayed(
    market: _JudgedMarket, setting: ReplaySettings, request: BacktestRequest, stage: ReportProgress
) -> list[tuple[Watch, BacktestResult | None]]:
    """Run the watches of a market together."""
    players = [(judged, found) for (_, judged, _), found in zip(market.rules, market.candidates, strict=True)]
    replayed, simulated = replay(players, market.history, setting, lambda done, of: stage("replaying", done, of))
    return [
        (watch, result_of(result, simulated, request.deadline))
        for (watch, _, _), result in zip(market.rules, replayed, strict=True)
    ]


def _replayed_thresholds(
    market: _JudgedMarket, setting: ReplaySettings, request: BacktestRequest, stage: ReportProgress
) -> list[tuple[Watch, BacktestResult | None]]:
    """Run one watch at many thresholds."""
    ((watch, judged, _),), (candidates,), prices = market.rules, market.candidates, request.thresholds
    results: list[tuple[Watch, BacktestResult | None]] = []
    for price, result in sweep_thresholds(judged, candidates, market.history, setting, prices, request.deadline):
        stage("replaying", len(results), len(prices))
        results.append((with_threshold(watch, price), result))
    return results


def _with_judged_rule(
    watch: Watch, market_history: MarketHistory, request: BacktestRequest
) -> tuple[Watch, tuple[str, ...]]:
    rule, ignored = without_unrecorded_clauses(watch, market_history.listings)
    if ignored and request.strict and market_history.listings:
        raise UsageError(f"watch {watch.name!r}: the history cannot evaluate {', '.join(ignored)} (--strict)")
    return rule, ignored


def _history(
    settings: Settings,
    watches: Sequence[Watch],
    listing: Sequence[str],
    request: BacktestRequest,
    stage: ReportProgress,
) -> MarketHistory:
    """Live prices, and the list prices of these providers."""
    stage("reading", 0, 1)
    gpus = tuple(dict.fromkeys(gpu for watch in watches for gpu in watch.gpu_names))
    scopes = [MarketFilter(gpus=gpus, provider=request.provider)]
    if request.data is None and request.provider is None:
        scopes += [MarketFilter(gpus=gpus, provider=f"{name}:listed") for name in listing]
    return _joined_history(
        [load_prices(settings, scope, request.since, request.until, request.data) for scope in scopes]
    )


def _listing(settings: Settings, watches: Sequence[Watch]) -> list[str]:
    """The providers whose list prices a watch accepts."""
    listing = [name for name in settings.providers if OfferKind.LISTED in providers.info(name).kinds]
    return [name for name in listing if any(is_polled_for(name, watch) and watch.listed for watch in watches)]


def _joined_history(histories: Sequence[MarketHistory]) -> MarketHistory:
    first, *others = histories
    if not any(market_history.polls for market_history in others):
        return first
    listings, intervals = list[ListedOffer](), MarketIntervals()
    for market_history in histories:
        moved = (one._replace(listing=one.listing + len(listings)) for one in market_history.intervals)
        intervals.extend(moved)
        listings += market_history.listings
    intervals.order_by_time()
    polls = joined_polls([market_history.polls for market_history in histories])
    return msgspec.structs.replace(first, listings=tuple(listings), intervals=intervals, polls=polls)


def _setting(settings: Settings, request: BacktestRequest) -> ReplaySettings:
    min_age = timedelta(seconds=COVERAGE_S)  # how long a recorded price counts
    access = not_rentable(settings)
    return ReplaySettings(
        commissions=all_commissions(settings),
        max_age=min_age,
        max_ages={name: max(age, min_age) for name, age in max_ages(settings, list(settings.providers)).items()},
        budget=settings.budget,
        zone=ZoneInfo(settings.timezone),
        job=None if request.job_s is None else timedelta(seconds=request.job_s),
        reference_disk_gb=REFERENCE_DISK_GB,
        able=lambda matches: access.able(matches, dry_run=True),  # without a key, the result is the same as with one
    )


def _with_limits(
    settings: Settings,
    setting: ReplaySettings,
    judged: Sequence[Watch],
    watches: Sequence[Watch],
    request: BacktestRequest,
    stage: ReportProgress,
) -> ReplaySettings:
    """`max_price = "auto"`: the limits that the daemon would have used, from the data known at each moment.

    Args:
        judged: the watches whose limits are wanted.
        watches: all watches: an hour counts as polled if it was for any of those with such a limit.
    """
    auto = [watch for watch in watches if watch.auto is not None]
    longer = msgspec.structs.replace(
        request, since=request.since - _AUTO_HISTORY
    )  # history before the start of the replay
    history = _history(settings, auto, _listing(settings, auto), longer, stage)
    series = {
        watch.name: fitting_series(watch, history, setting.commissions, setting.reference_disk_gb) for watch in judged
    }
    return msgspec.structs.replace(
        setting, limit=AutoPrices(BacktestWaits(series), BACKTEST_RECOMPUTE_EVERY).renew_until
    )
