"""What the one-shot commands need, built for one answer and closed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.wiring import adapters, http_client, real_now

if TYPE_CHECKING:
    from gpuwatch.engine.check import Checked
    from gpuwatch.settings import Settings
    from gpuwatch.watches.watch import Watch


def check_markets(settings: Settings, watches: Sequence[Watch], only: Sequence[str]) -> list[Checked]:
    """Ask every provider that the watches name, each in its own thread; one's trouble never delays another."""
    from gpuwatch.engine.check import Checked, check_provider

    asked = {name: [w for w in watches if w.providers is None or name in w.providers] for name in settings.providers}
    asked = {name: mine for name, mine in asked.items() if mine and (not only or name in only)}
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
    settings: Settings, watches: Sequence[Watch], checked: Sequence[Checked], now: datetime
) -> Iterator[str]:
    """For the nearest offers of each watch: which clause failed, and by how much."""
    from gpuwatch.engine.check import explain

    commissions = {name: provider.commission for name, provider in settings.providers.items()}
    for watch in watches:
        yield from explain(watch, checked, commissions, now)


def store_check(settings: Settings, checked: Sequence[Checked]) -> None:
    """Keep what a check saw. Raises StoreError."""
    from gpuwatch.storage.quick import record_answers

    answers = [(query, answer) for part in checked for query, answer in part.answers]
    record_answers(settings.database_url, answers, real_now())
