"""The owner's word on an ask, from whichever face it comes. Works beside a running daemon, and without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch.engine.act import Actor
from gpuwatch.engine.approve import Reply, Respondent
from gpuwatch.engine.ask import Terms
from gpuwatch.engine.launch_alerts import Herald
from gpuwatch.engine.purse import Purse
from gpuwatch.engine.rent import Shop
from gpuwatch.errors import UsageError
from gpuwatch.storage.asks import Asks
from gpuwatch.storage.ledger import Ledger
from gpuwatch.wiring import adapters, database, http_client, monotonic, new_id, real_now
from gpuwatch.wiring.access import has_credentials

if TYPE_CHECKING:
    from gpuwatch.launches.ask import Ask
    from gpuwatch.net import Http
    from gpuwatch.providers import Adapter
    from gpuwatch.settings import Settings
    from gpuwatch.storage.database import Database


def approve(settings: Settings, ask_id: str) -> Reply:
    """Rent what was quoted, at that price or less, and wait for the provider's answer.

    Raises:
        UsageError: there is no such question, or the settings do not allow it any more.
        StoreError: nothing was begun, or what was begun stands in the store.
    """
    with _respondent(settings) as respondent:
        return respondent.approve(ask_id)


def deny(settings: Settings, ask_id: str, why: str = "") -> Reply:
    """Do not rent it, and do not ask about it again for a day. Raises UsageError, StoreError."""
    with _respondent(settings) as respondent:
        return respondent.deny(ask_id, why)


def recent_asks(settings: Settings) -> list[Ask]:
    """Open questions, and those of the last week, newest first. Raises StoreError."""
    with database(settings) as store:
        return Asks(store).recent(real_now())


@contextmanager
def _respondent(settings: Settings) -> Iterator[Respondent]:
    with database(settings) as store, http_client(settings) as http:
        yield respondent_of(settings, store, http)


def respondent_of(settings: Settings, store: Database, http: Http) -> Respondent:
    """Who carries the owner's word out, over an opened store. Nothing is asked of anybody before there is a word."""
    terms = Terms(
        budget=settings.budget,
        dry_run=settings.dry_run,
        zone=ZoneInfo(settings.timezone),
        commissions={name: provider.commission for name, provider in settings.providers.items()},
    )
    return Respondent(
        Asks(store),
        {watch.name: watch for watch in settings.watches},
        terms,
        market_of=lambda name: _adapter(settings, http, name).market,
        acts_at=lambda name: _actor(settings, store, http, name),
        clock=real_now,
    )


def _adapter(settings: Settings, http: Http, name: str) -> Adapter:
    if name not in settings.providers:
        raise UsageError(f"{name} is not enabled in the settings any more; nothing was rented")
    return adapters(settings, http, [name])[name]


def _actor(settings: Settings, store: Database, http: Http, name: str) -> Actor:
    adapter = _adapter(settings, http, name)
    if adapter.launcher is None:
        raise UsageError(f"gpuwatch cannot rent at {name}")
    if not has_credentials(settings.providers[name]):
        raise UsageError(f"there is no key for {name}: nothing can be rented there; see: gpuwatch providers")
    purse = Purse(adapter.launcher, monotonic)
    purse.look()
    shop = Shop(adapter.launcher, adapter.market, settings.providers[name].commission, purse)
    return Actor(Ledger(store), {name: shop}, Herald(_channels_of(settings), new_id), real_now, settings.budget)


def _channels_of(settings: Settings) -> Callable[[str], tuple[str, ...]]:
    """A watch's channels by its name; by default all that are configured."""
    configured = settings.channels
    everything = tuple(name for name in ("telegram", "email", "apprise") if getattr(configured, name))
    own = {watch.name: watch.notify for watch in settings.watches if watch.notify is not None}
    return lambda name: own.get(name, everything)
