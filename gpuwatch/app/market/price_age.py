"""How long a stored price counts as the price now: the one rule for every command and page."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from gpuwatch import providers
from gpuwatch.storage.history.recording.price_sources import provider_of_source

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

FRESH = timedelta(hours=3)  # the time that a poll counts in the history
_POLLS_KEPT = 3  # an answer counts for this many poll intervals of its provider, as for watches


def max_price_age(settings: Settings, source: str) -> timedelta:
    """The maximum age of a poll whose prices are those of now. Price lists are polled a few times a day."""
    name, every_s = provider_of_source(source), 0.0
    if name in settings.providers:
        every_s = settings.providers[name].poll_every_s
    elif name in providers.names():
        every_s = providers.info(name).poll_every_s
    return max(FRESH, timedelta(seconds=_POLLS_KEPT * every_s))
