"""What holds for all watches of the daemon, from the settings: who is asked for what, how long a view is fresh."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch import providers
from gpuwatch.engine.evaluate import Rules
from gpuwatch.engine.queries import RENTAL_TYPES
from gpuwatch.wiring.access import asked_for, unable

if TYPE_CHECKING:
    from gpuwatch.market.pricing import Commission
    from gpuwatch.settings import Settings

_LOOKS_MISSED = 3  # so many looks may fail before what they would have shown is not known any more
_SLACK = timedelta(seconds=60)


def rules_of(
    settings: Settings,
    names: Collection[str],
    channels: tuple[str, ...],
    not_ready: Callable[[str, int], str | None],
) -> Rules:
    """The rules of one daemon.

    Args:
        names: the providers that can be asked.
    """
    ages = max_ages(settings, names)
    return Rules(
        commissions=commissions_of(settings),
        budget=settings.budget,
        dry_run=settings.dry_run,
        channels=channels,
        zone=ZoneInfo(settings.timezone),
        views_expected={
            watch.name: frozenset((name, spot) for name in asked_for(watch, names) for spot in RENTAL_TYPES[watch.spot])
            for watch in settings.watches
        },
        max_age=max(ages.values(), default=_SLACK),
        max_ages=ages,
        links={name: url for name in names if (url := providers.info(name).console_url) is not None},
        unable=unable(settings),
        not_ready=not_ready,
    )


def commissions_of(settings: Settings) -> Mapping[str, Commission]:
    """Provider → what is reckoned on its listed prices; of those that are enabled."""
    return {name: provider.commission for name, provider in settings.providers.items()}


def max_ages(settings: Settings, names: Collection[str]) -> Mapping[str, timedelta]:
    """Provider → how old a view of it may be: three of its own rounds, whose questions lie `search_interval` apart."""
    ages = {}
    for name in names:
        provider = settings.providers[name]
        asked = [watch for watch in settings.watches if asked_for(watch, [name])]
        questions = sum(len(RENTAL_TYPES[watch.spot]) for watch in asked)
        round_s = max(provider.poll_every_s, questions * provider.search_interval_s)
        ages[name] = timedelta(seconds=_LOOKS_MISSED * round_s) + _SLACK
    return ages
