"""What the one-shot commands need, built for one answer and closed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuwatch.errors import StoreError, UsageError
from gpuwatch.wiring import adapters, http_client, opened_http, real_now

if TYPE_CHECKING:
    from gpuwatch.engine.browse import Browsed, Wanted
    from gpuwatch.engine.check import Checked
    from gpuwatch.settings import Settings
    from gpuwatch.watches.decide import WatchMemory
    from gpuwatch.watches.watch import Watch


def check_markets(settings: Settings, watches: Sequence[Watch], only: Sequence[str]) -> list[Checked]:
    """Ask every provider that the watches name, each in its own thread; one's trouble never delays another.

    A provider that cannot be asked at all answers with a report that says so.
    """
    from gpuwatch.engine.check import check_provider, not_checked
    from gpuwatch.wiring.abreast import abreast
    from gpuwatch.wiring.access import is_asked

    named = named_providers(settings, only)
    asked = {name: [watch for watch in watches if is_asked(name, watch)] for name in named}
    asked = {name: mine for name, mine in asked.items() if mine}
    if not asked:
        raise UsageError("no enabled provider is asked for by these watches; see: gpuwatch config show")
    with http_client(settings) as http:

        def one(name: str) -> Checked:
            market = adapters(settings, http, [name])[name].market
            return check_provider(market, asked[name], settings.providers[name].commission, real_now)

        found = {
            outcome.name: outcome.result or not_checked(outcome.name, outcome.error or "")
            for outcome in abreast(asked, one)
        }
    return [found[name] for name in asked]


def explain_lines(
    settings: Settings, watches: Sequence[Watch], checked: Sequence[Checked], only: Sequence[str]
) -> Iterator[str]:
    """What the daemon would decide on this look, and why; for the nearest offers, which clause failed, and by how much.

    Asks once more, without a price.
    """
    from gpuwatch.engine.explain import decided, explain

    memories = _memories(settings)
    commissions = {name: provider.commission for name, provider in settings.providers.items()}
    with http_client(settings) as http:
        built = adapters(settings, http, only or None)
        for watch in watches:
            yield decided(watch, checked, memories.get(watch.name), real_now(), settings.timezone)
            for name, adapter in built.items():
                if watch.providers is None or name in watch.providers:
                    yield from explain(watch, adapter.market, commissions, real_now())


def _memories(settings: Settings) -> Mapping[str, WatchMemory]:
    """What the daemon's watches remember; nothing, if there is no store."""
    from gpuwatch.storage.desk import StoreDesk
    from gpuwatch.wiring import database

    try:
        with database(settings) as store:
            return StoreDesk(store).memories()
    except StoreError:
        return {}


def store_check(settings: Settings, checked: Sequence[Checked]) -> None:
    """Keep what a check saw. Raises StoreError."""
    from gpuwatch.storage.quick import record_answers

    answers = [(query, answer) for part in checked for query, answer in part.answers if answer.searches]
    record_answers(settings.database_url, answers, real_now())


def who_has(settings: Settings, wanted: Wanted, only: Sequence[str]) -> list[str]:
    """The enabled providers that give prices of the wanted kinds, or those that are named. Raises UsageError."""
    from gpuwatch import providers

    named = named_providers(settings, only)
    found = [name for name in named if only or wanted.kinds & frozenset(providers.info(name).kinds)]
    if not found:
        kinds = " or ".join(sorted(kind.value for kind in wanted.kinds))
        raise UsageError(f"no enabled provider gives {kinds} prices; see: gpuwatch providers")
    return found


def markets_now(
    settings: Settings, wanted: Wanted, names: Sequence[str], limit: int | None, within_s: float
) -> Iterator[Browsed]:
    """What each of these providers has on offer, as soon as it has answered; at the end, who has not, in a line each.

    Args:
        limit: of each provider; None: everything.
        within_s: real seconds for all of them together.
    """
    import threading

    from gpuwatch.engine.browse import Browsed, browse
    from gpuwatch.wiring.abreast import abreast

    http, stop, waiting = opened_http(settings), threading.Event(), set(names)

    def one(name: str) -> Browsed:
        market = adapters(settings, http, [name], stop)[name].market
        return browse(market, wanted, settings.providers[name].commission, limit)

    try:
        for outcome in abreast(names, one, within_s):
            if not outcome.late:
                waiting.discard(outcome.name)
            yield outcome.result or Browsed(provider=outcome.name, error=outcome.error)
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
