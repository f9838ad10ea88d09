"""The value of every metric, read from the store; needs neither a web server nor Prometheus' library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from gpuwatch import __version__
from gpuwatch.app.approvals import recent_approvals
from gpuwatch.app.check import current_limits
from gpuwatch.app.costs import budgets_used
from gpuwatch.app.current_offers import current_offers
from gpuwatch.app.job_metrics import job_values
from gpuwatch.app.metric_specs import OTHER_GPU
from gpuwatch.app.provider_status import provider_statuses
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.analysis.price_forecasts import Scored, record_of
from gpuwatch.domain.launches.approval import ApprovalState
from gpuwatch.domain.launches.billing import cost_microusd
from gpuwatch.domain.launches.costs import burn_rate
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.market.gpu_specs import gpu_specs
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.pricing import MICRO, Commission, OfferPrice
from gpuwatch.domain.watches.match import failures, price_for
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.browse import offer_filter
from gpuwatch.errors import StoreError
from gpuwatch.storage.counters import (
    SearchCounter,
    alerts_stored,
    newest_complete_polls,
    reaction_times_s,
    rows_returned,
)
from gpuwatch.storage.forecasts import SqlForecasts
from gpuwatch.storage.launch_repository import SqlLaunchRepository
from gpuwatch.storage.outbox import Outbox

if TYPE_CHECKING:
    from gpuwatch.app.check import MarketCheck
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database

Labels = tuple[str, ...]
Values = dict[str, dict[Labels, float]]
# Facts in the history. A watch cannot be evaluated by its other clauses.
_KNOWN_CLAUSES = frozenset({"providers", "gpu", "kind", "gpu_count", "spot", "min_vram_gib", "verified", "regions"})


class TaskHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the tasks of the daemon's own process."""

    last_success: Mapping[str, datetime] = {}
    failing: frozenset[str] = frozenset()


class MetricValues(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment.

    Attributes:
        values: metric → values of its labels, in their order → value.
        reaction_s: observations of the histogram.
    """

    values: Values
    reaction_s: Sequence[float] = ()


class MetricsReader:
    """Reads all metrics of one installation and keeps its counters."""

    def __init__(self) -> None:
        self._searches = SearchCounter()

    def read(self, settings: Settings, now: datetime, tasks: TaskHealth | None = None) -> MetricValues:
        """The values of all metrics. Never raises StoreError: `gpuwatch_store_readable` shows it."""
        limits = current_limits(settings, settings.watches, keep=False).watches
        values: Values = {
            "gpuwatch_build_info": {(__version__,): 1.0},
            "gpuwatch_watch_max_price_usd_gpu_hour": {
                (limit.name,): float(limit.max_price_usd_gpu_hour) for limit in limits if not limit.unlimited
            },
            **_task_values(tasks),
        }
        try:
            with open_store_read_only(settings) as store:
                reaction_s = reaction_times_s(store)
                stored = {
                    **self._totals(store),
                    **_launch_values(settings, SqlLaunchRepository(store).all(), now),
                    **_outbox_values(settings, store, now),
                    **_forecast_values(SqlForecasts(store, {}).all()),
                    **job_values(store, now),
                }
                polled = newest_complete_polls(store, settings.providers)
            stored |= _provider_values(settings, polled, now) | _market_values(settings, limits, now)
            waiting = [
                approval for approval in recent_approvals(settings) if approval.state_at(now) is ApprovalState.OPEN
            ]
            stored["gpuwatch_approvals_open"] = {(): float(len(waiting))}
        except StoreError:
            return MetricValues(values=values | {"gpuwatch_store_readable": {(): 0.0}})
        return MetricValues(values=values | stored | {"gpuwatch_store_readable": {(): 1.0}}, reaction_s=reaction_s)

    def _totals(self, store: Database) -> Values:
        return {
            "gpuwatch_searches_total": {key: float(count) for key, count in self._searches.count(store).items()},
            "gpuwatch_rows_total": {(name,): float(rows) for name, rows in rows_returned(store).items()},
            "gpuwatch_alerts_total": {key: float(count) for key, count in alerts_stored(store).items()},
        }


def with_check(stored: MetricValues, check: MarketCheck) -> MetricValues:
    """The results of one check, which replace those of the store, because they may not have been stored.

    Ages are left out, because they would not grow in a file.
    """
    at_s = check.at.timestamp()
    seen: Values = {
        "gpuwatch_provider_healthy": {
            (provider.report.provider,): float(provider.report.ok) for provider in check.providers
        },
        "gpuwatch_provider_last_complete_poll_timestamp_seconds": {
            (provider.report.provider,): at_s for provider in check.providers if provider.report.ok
        },
        "gpuwatch_watch_best_price_usd_gpu_hour": {
            (name,): min(_gpu_price(match.offer, match.price) for match in matches)
            for name, matches in check.matches.items()
            if matches
        },
    }
    merged = {name: stored.values.get(name, {}) | values for name, values in seen.items()}
    values = stored.values | merged
    values.pop("gpuwatch_poll_age_seconds", None)
    return msgspec.structs.replace(stored, values=values)


def _task_values(tasks: TaskHealth | None) -> Values:
    if tasks is None:
        return {}
    tasks_ = {*tasks.last_success, *tasks.failing}
    return {
        "gpuwatch_task_last_success_timestamp_seconds": {
            (task,): at.timestamp() for task, at in tasks.last_success.items()
        },
        "gpuwatch_task_failing": {(task,): float(task in tasks.failing) for task in tasks_},
    }


def _provider_values(settings: Settings, polled: Mapping[str, datetime], now: datetime) -> Values:
    values: Values = {
        "gpuwatch_provider_healthy": {},
        "gpuwatch_provider_last_complete_poll_timestamp_seconds": {},
        "gpuwatch_poll_age_seconds": {},
        "gpuwatch_rows_quota": {},
        "gpuwatch_rows_left": {},
        "gpuwatch_format_changes": {},
    }
    for status in provider_statuses(settings):
        if not status.is_on:
            continue
        name, health = (status.provider,), status.health
        is_answering = health.complete_at is not None and health.blind_since is None
        values["gpuwatch_provider_healthy"][name] = float(is_answering)
        values["gpuwatch_format_changes"][name] = float(len(status.drift))
        if complete_at := max((at for at in (health.complete_at, polled.get(status.provider)) if at), default=None):
            complete_s = complete_at.timestamp()
            values["gpuwatch_provider_last_complete_poll_timestamp_seconds"][name] = complete_s
            values["gpuwatch_poll_age_seconds"][name] = max(now.timestamp() - complete_s, 0.0)
        if status.plan.rows_left is not None:
            values["gpuwatch_rows_quota"][name] = float(status.plan.rows_per_day)
            values["gpuwatch_rows_left"][name] = float(status.plan.rows_left)
    return values


def _launch_values(settings: Settings, launches: Sequence[Launch], now: datetime) -> Values:
    states = Counter(launch.state for launch in launches)
    spent = Counter[str](dict.fromkeys(settings.providers, 0))
    for launch in launches:
        if not launch.dry_run:
            spent[launch.provider] += cost_microusd(launch, now)
    budgets: dict[Labels, float] = {}
    for use in budgets_used(settings, launches):
        percent = use.percent(use.used)
        if percent is not None:
            budgets[use.limit_name if use.watch is None else f"{use.watch}/{use.limit_name}",] = percent / 100
    if settings.budget.max_instances:
        alive = sum(launch.promised.machines for launch in launches if not launch.is_over and not launch.dry_run)
        budgets["max_instances",] = alive / settings.budget.max_instances
    return {
        "gpuwatch_launches": {(state.value,): float(states[state]) for state in LaunchState},
        "gpuwatch_burn_rate_usd_hour": {(): burn_rate(launches, now).effective / MICRO},
        "gpuwatch_spent_usd_total": {(name,): microusd / MICRO for name, microusd in spent.items()},
        "gpuwatch_budget_used_ratio": budgets,
    }


def _outbox_values(settings: Settings, store: Database, now: datetime) -> Values:
    oldest: dict[Labels, float] = {(name,): 0.0 for name in settings.channels}
    for pending in Outbox(store).pending():
        if (pending.channel,) in oldest:
            oldest[pending.channel,] = max((now - pending.oldest_at).total_seconds(), 0.0)
    return {"gpuwatch_outbox_oldest_seconds": oldest}


def _forecast_values(forecasts: Sequence[Scored]) -> Values:
    """The scores that the daemon has stored; reading metrics scores nothing."""
    counted: dict[Labels, float] = {}
    reached: dict[Labels, float] = {}
    saved: dict[Labels, float] = {}
    for source in {forecast.source for forecast, _ in forecasts}:
        record = record_of(row for row in forecasts if row[0].source is source)
        for outcome in ("open", "bought", "missed", "unknown"):
            counted[source.value, outcome] = float(getattr(record, outcome))
        for bin_ in record.calibration:
            reached[source.value, f"{bin_.stated:g}"] = bin_.reached / bin_.counted
        for against, compared in (("at_once", record.at_once), ("fixed_median", record.median)):
            if compared.saved is not None:
                saved[source.value, against] = compared.saved
    return {
        "gpuwatch_forecasts": counted,
        "gpuwatch_forecast_reached_ratio": reached,
        "gpuwatch_forecast_saved_ratio": saved,
    }


def _market_values(settings: Settings, watches: Iterable[Watch], now: datetime) -> Values:
    offers = current_offers(settings, offer_filter((), spot="any")).offers
    counts: Counter[Labels] = Counter()
    cheapest: dict[Labels, float] = {}
    for offer, price in offers:
        if offer.spot or offer.kind is not OfferKind.LIVE:
            continue
        key = (offer.provider, _bounded(offer))
        counts[key] += 1
        gpu_price = _gpu_price(offer, price)
        cheapest[key] = min(cheapest.get(key, gpu_price), gpu_price)
    commissions = {name: options.commission for name, options in settings.providers.items()}
    best_prices: dict[Labels, float] = {
        (watch.name,): best
        for watch in watches
        if (best := _best_of(watch, [offer for offer, _ in offers], commissions, now)) is not None
    }
    return {
        "gpuwatch_offers": {key: float(count) for key, count in counts.items()},
        "gpuwatch_best_price_usd_gpu_hour": cheapest,
        "gpuwatch_watch_best_price_usd_gpu_hour": best_prices,
    }


def _best_of(
    watch: Watch, offers: Iterable[Offer], commissions: Mapping[str, Commission], now: datetime
) -> float | None:
    prices = []
    for offer in offers:
        price = price_for(watch, offer, commissions)
        if not {failure.clause for failure in failures(watch, offer, price, now)} & _KNOWN_CLAUSES:
            prices.append(_gpu_price(offer, price))
    return min(prices, default=None)


def _gpu_price(offer: Offer, price: OfferPrice) -> float:
    return price.price_microusd_hour / MICRO / offer.gpu_count


def _bounded(offer: Offer) -> str:
    return offer.gpu if offer.gpu in gpu_specs() else OTHER_GPU
