"""What the one-shot commands need, built for one answer and closed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import (
    build_adapters,
    http_client,
    open_http,
    real_now,
)
from gpuwatch.errors import StoreError, UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.watches.decide import WatchMemory
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.engine.browse import OfferFilter, ProviderOffers
    from gpuwatch.engine.check import ProviderCheck
    from gpuwatch.settings import Settings


def check_markets(settings: Settings, watches: Sequence[Watch], only: Sequence[str]) -> list[ProviderCheck]:
    """Ask every provider that the watches name, each in its own thread; one's trouble never delays another.

    A provider that cannot be asked at all answers with a report that says so.
    """
    from gpuwatch.bootstrap.provider_access import is_polled_for
    from gpuwatch.engine.check import check_provider, not_checked
    from gpuwatch.engine.parallel import run_in_parallel

    named = named_providers(settings, only)
    asked = {name: [watch for watch in watches if is_polled_for(name, watch)] for name in named}
    asked = {name: mine for name, mine in asked.items() if mine}
    if not asked:
        raise UsageError("no enabled provider is asked for by these watches; see: gpuwatch config show")
    with http_client(settings) as http:

        def one(name: str) -> ProviderCheck:
            market = build_adapters(settings, http, [name])[name].market
            return check_provider(market, asked[name], settings.providers[name].commission, real_now)

        found = {
            outcome.name: outcome.result or not_checked(outcome.name, outcome.error or "")
            for outcome in run_in_parallel(asked, one)
        }
    return [found[name] for name in asked]


def explain_lines(
    settings: Settings, watches: Sequence[Watch], checked: Sequence[ProviderCheck], only: Sequence[str]
) -> Iterator[str]:
    """What the daemon would decide on this look, and why; for the nearest offers, which clause failed, and by how much.

    Asks once more, without a price.
    """
    from gpuwatch.engine.explain import decision_line, explain

    memories = _memories(settings)
    commissions = {name: provider.commission for name, provider in settings.providers.items()}
    with http_client(settings) as http:
        built = build_adapters(settings, http, only or None)
        for watch in watches:
            yield decision_line(watch, checked, memories.get(watch.name), real_now(), settings.timezone)
            for name, adapter in built.items():
                if watch.providers is None or name in watch.providers:
                    yield from explain(watch, adapter.market, commissions, real_now())


def _memories(settings: Settings) -> Mapping[str, WatchMemory]:
    """What the daemon's watches remember; nothing, if there is no store."""
    from gpuwatch.bootstrap import open_store
    from gpuwatch.storage.unit_of_work import SqlDecisionStore

    try:
        with open_store(settings) as store:
            return SqlDecisionStore(store).memories()
    except StoreError:
        return {}


def store_check(settings: Settings, checked: Sequence[ProviderCheck]) -> None:
    """Keep what a check saw. Raises StoreError."""
    from gpuwatch.storage.light_writer import record_answers

    answers = [(query, answer) for part in checked for query, answer in part.answers if answer.searches]
    record_answers(settings.database_url, answers, real_now())


def providers_that_sell(settings: Settings, wanted: OfferFilter, only: Sequence[str]) -> list[str]:
    """The enabled providers that give prices of the wanted kinds, or those that are named. Raises UsageError."""
    from gpuwatch import providers

    named = named_providers(settings, only)
    found = [name for name in named if only or wanted.kinds & frozenset(providers.info(name).kinds)]
    if not found:
        kinds = " or ".join(sorted(kind.value for kind in wanted.kinds))
        raise UsageError(f"no enabled provider gives {kinds} prices; see: gpuwatch providers")
    return found


def markets_now(
    settings: Settings, wanted: OfferFilter, names: Sequence[str], limit: int | None, within_s: float
) -> Iterator[ProviderOffers]:
    """What each of these providers has on offer, as soon as it has answered; at the end, who has not, in a line each.

    Args:
        limit: of each provider; None: everything.
        within_s: real seconds for all of them together.
    """
    import threading

    from gpuwatch.engine.browse import ProviderOffers, search_offers
    from gpuwatch.engine.parallel import run_in_parallel

    http, stop, waiting = open_http(settings), threading.Event(), set(names)

    def one(name: str) -> ProviderOffers:
        market = build_adapters(settings, http, [name], stop)[name].market
        return search_offers(market, wanted, settings.providers[name].commission, limit)

    try:
        for outcome in run_in_parallel(names, one, within_s):
            if not outcome.late:
                waiting.discard(outcome.name)
            yield outcome.result or ProviderOffers(provider=outcome.name, error=outcome.error)
    finally:
        stop.set()  # what still waits for its turn gives up
        if not waiting:  # what is on its way is left to the end of the process
            http.close()


def named_providers(settings: Settings, only: Sequence[str]) -> list[str]:
    """The enabled providers, or those of them that were named. Raises UsageError for one that is not enabled."""
    for name in only:
        if name not in settings.providers:
            enabled = ", ".join(settings.providers) or "none"
            raise UsageError(f"there is no enabled provider {name!r}; enabled: {enabled}")
    return list(only) or list(settings.providers)
