"""The rules for all watches, from the settings: which providers are polled, and how long an answer is valid."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch import providers
from gpuwatch.bootstrap.provider_access import label_lengths, not_rentable, providers_polled_for
from gpuwatch.domain.watches.owner_names import owned_name
from gpuwatch.engine.alerts.alert_routing import AlertRouting
from gpuwatch.engine.market.watch_search import RENTAL_TYPES
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.ports import SilentChannel

if TYPE_CHECKING:
    from gpuwatch.domain.history.past_lows import PriceRank
    from gpuwatch.domain.market.money import Commission
    from gpuwatch.domain.market.offer import Offer
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.ports import Channel
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

MAX_MISSED_POLLS = 3  # this many polls may fail before the market is unknown
AGE_SLACK = timedelta(seconds=60)


def build_rules(
    settings: Settings,
    names: Collection[str],
    rank_of: Callable[[Offer, bool], PriceRank | None] = lambda offer, verified: None,
    accounts: Callable[[], Mapping[str, str]] = dict,
    paced_ages: Mapping[str, timedelta] = {},
    emptied: Collection[str] = frozenset(),
) -> EvaluationRules:
    """The rules of a daemon.

    Args:
        names: the providers that can be polled.
        rank_of: the rank of an offer's price in its history (True: of verified hosts alone); None: unknown.
        accounts: the accounts known so far, by provider.
        paced_ages: the longer ages of answers while a row quota slows the polls down; kept by the workers.
        emptied: the providers whose answers became empty; kept by their recorders.
    """
    ages = max_ages(settings, names)

    def views_of(watch: Watch) -> frozenset[tuple[str, bool]]:
        return frozenset(
            (name, spot) for name in providers_polled_for(watch, names) for spot in RENTAL_TYPES[watch.spot]
        )

    return EvaluationRules(
        commissions=commissions_of(settings),
        budget=settings.budget,
        dry_run=settings.dry_run,
        zone=ZoneInfo(settings.timezone),
        expected_views={watch.name: views_of(watch) for watch in settings.watches},
        views_of=views_of,
        max_age=max(ages.values(), default=AGE_SLACK),
        max_ages=ages,
        paced_ages=paced_ages,
        emptied=emptied,
        rank_of=rank_of,
        accounts=accounts,
        links={name: url for name in names if (url := providers.info(name).console_url) is not None},
        unable=not_rentable(settings),
        label_lengths=label_lengths(names),
    )


def build_routing(settings: Settings, channels: Mapping[str, Channel]) -> AlertRouting:
    """Which channels, by the names under which the owner's are stored, receive which alerts, and when."""
    stored = partial(owned_name, settings.owner)
    notified = {watch.name: watch.notify for watch in settings.watches if watch.notify is not None}
    return AlertRouting(
        channels=tuple(channels),
        watch_channels={watch: tuple(map(stored, names)) for watch, names in notified.items()},
        min_severity={stored(name): channel.min_severity for name, channel in settings.channels.items()},
        quiet_hours=settings.quiet_hours,
        silent_channels=frozenset(name for name, channel in channels.items() if isinstance(channel, SilentChannel)),
        zone=ZoneInfo(settings.timezone),
    )


def commissions_of(settings: Settings) -> Mapping[str, Commission]:
    """Provider → its commission; enabled providers only."""
    return {name: provider.commission for name, provider in settings.providers.items()}


def all_commissions(settings: Settings) -> Mapping[str, Commission]:
    """Provider → its commission, as configured; its default if it is not enabled."""
    defaults = {name: providers.info(name).commission for name in providers.names()}
    return defaults | {name: provider.commission for name, provider in settings.providers.items()}


def max_ages(settings: Settings, names: Collection[str]) -> Mapping[str, timedelta]:
    """Provider → maximum age of its answer: three of its rounds, whose queries are `search_interval` apart."""
    ages = {}
    for name in names:
        provider = settings.providers[name]
        polled_watches = [watch for watch in settings.watches if providers_polled_for(watch, [name])]
        queries = sum(len(RENTAL_TYPES[watch.spot]) for watch in polled_watches)
        round_s = max(provider.poll_every_s, queries * provider.search_interval_s)
        ages[name] = timedelta(seconds=MAX_MISSED_POLLS * round_s) + AGE_SLACK
    return ages


def stored_pace(settings: Settings, name: str, store: Database) -> timedelta:
    """How often a provider is polled as far as the store shows: less often while its row quota slows its polls down.

    Raises StoreError.
    """
    from gpuwatch.engine.market.row_budget import matched_pace_s
    from gpuwatch.storage.history.queries.poll_queries import longest_gap

    provider = settings.providers[name]
    queries = sum(len(RENTAL_TYPES[watch.spot]) for watch in settings.watches if providers_polled_for(watch, [name]))
    slowest = timedelta(seconds=matched_pace_s(provider.rows_per_day, queries))
    plain = timedelta(seconds=provider.poll_every_s)
    return plain if slowest <= plain else max(plain, min(slowest, longest_gap(store, name, 2 * queries + 2)))


def stored_max_age(settings: Settings, name: str, pace: timedelta) -> timedelta:
    """The maximum age of a provider's stored answer.

    Args:
        pace: from `stored_pace`.
    """
    return max(max_ages(settings, [name])[name], 2 * pace)


def watched_gpus(settings: Settings, *, verified: bool = False) -> frozenset[str] | None:
    """The GPUs of the watches, or of those that want verified hosts; None: some watch accepts any."""
    gpu_lists = [watch.gpu_names for watch in settings.watches if watch.verified or not verified]
    return frozenset(chain(*gpu_lists)) if all(gpu_lists) else None
