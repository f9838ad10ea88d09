"""What the one-shot commands need, built for one answer and closed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuwatch.errors import StoreError, UsageError
from gpuwatch.wiring import adapters, http_client, real_now

if TYPE_CHECKING:
    from gpuwatch.engine.browse import Wanted
    from gpuwatch.engine.check import Checked
    from gpuwatch.settings import Settings
    from gpuwatch.watches.decide import Match, WatchMemory
    from gpuwatch.watches.watch import Watch


def check_markets(settings: Settings, watches: Sequence[Watch], only: Sequence[str]) -> list[Checked]:
    """Ask every provider that the watches name, each in its own thread; one's trouble never delays another."""
    from gpuwatch.engine.check import check_provider

    named = named_providers(settings, only)
    asked = {name: [w for w in watches if w.providers is None or name in w.providers] for name in named}
    asked = {name: mine for name, mine in asked.items() if mine}
    if not asked:
        raise UsageError("no enabled provider is asked for by these watches; see: gpuwatch config show")
    with http_client(settings) as http:
        built = adapters(settings, http, asked)

        def one(name: str) -> Checked:
            return check_provider(built[name].market, asked[name], settings.providers[name].commission, real_now)

        if len(asked) == 1:
            return [one(name) for name in asked]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=max(1, len(asked))) as pool:
            return list(pool.map(one, asked))


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

    answers = [(query, answer) for part in checked for query, answer in part.answers]
    record_answers(settings.database_url, answers, real_now())


def market_now(
    settings: Settings, wanted: Wanted, only: Sequence[str], limit: int
) -> tuple[list[Match], dict[str, str]]:
    """The cheapest offers of every provider by GPU price, and the errors of those that did not answer."""
    from gpuwatch.engine.browse import browse

    named = named_providers(settings, only)
    found: list[Match] = []
    errors: dict[str, str] = {}
    with http_client(settings) as http:
        for name, adapter in adapters(settings, http, named).items():
            matches, error = browse(adapter.market, wanted, settings.providers[name].commission, limit)
            found += matches
            if error:
                errors[name] = error
    found.sort(key=lambda match: match.price_microusd_gpu_hour)
    return found[:limit], errors


def named_providers(settings: Settings, only: Sequence[str]) -> list[str]:
    """The enabled providers, or those of them that were named. Raises UsageError for one that is not enabled."""
    for name in only:
        if name not in settings.providers:
            enabled = ", ".join(settings.providers) or "none"
            raise UsageError(f"there is no enabled provider {name!r}; enabled: {enabled}")
    return list(only) or list(settings.providers)
