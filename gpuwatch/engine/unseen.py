"""A provider that gives no list of instances while something is rented there: told once, and when the list is back.

The hunt has eyes of its own (`sight`); a key that may search and not list leaves those open, and what runs unseen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from gpuwatch.engine.launch_alerts import Herald
from gpuwatch.errors import ProviderError, StoreError
from gpuwatch.ports import Books, News

log = logging.getLogger(__name__)

PATIENCE_S = 600.0


class Unseen:
    """How long one provider's instances have not been seen.

    Args:
        monotonic: seconds.
    """

    def __init__(self, books: Books, herald: Herald, provider: str, monotonic: Callable[[], float]) -> None:
        self._books = books
        self._herald = herald
        self._provider = provider
        self._monotonic = monotonic
        self._since_s: float | None = None
        self._told = False

    def failed(self, error: ProviderError, alive: int, now: datetime) -> None:
        """No usable list, while so many launches are alive there."""
        if self._since_s is None:
            self._since_s = self._monotonic()
        elif alive and not self._told and self._monotonic() - self._since_s > PATIENCE_S:
            self._told = self._tell(self._herald.unseen(self._provider, alive, str(error), now))

    def saw(self, now: datetime) -> None:
        """A whole list came."""
        self._since_s = None
        if self._told:
            self._told = not self._tell(self._herald.seen_again(self._provider, now))

    def _tell(self, news: News) -> bool:
        try:
            self._books.tell(news)
        except StoreError as error:
            log.warning("not told yet: %s: %s", news.alert.headline, error)
            return False
        return True
