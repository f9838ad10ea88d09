"""The newest observations of the watches, and the wait for other providers' quotes before a decision to rent.

- `NewestObservations`: of each watch at each provider. The evaluator writes it; guards, jobs and hunts read it.
- `QuoteGathering`: the first answer is not always the cheapest. Between the firing of a renting watch and its decision,
  a provider whose newest quote is older than `gather` is queried at once, and waited for at most `gather`; with only
  one provider there is no wait. After a start, the time counts from the first query to a provider: it could not have
  answered earlier.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from gpuwatch.domain.market.money import MICRO, per_unit_hour, threshold_microusd
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.choice import best_first
from gpuwatch.domain.watches.decide import (
    Match,
    Observation,
    current_quotes,
)
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.language import mark_text

_STARTS_SOON_S = 0.25  # how often to check for the first query to a provider
_COMPARED = mark_text("compared")  # stored in English, and translated part by part
ProviderView = tuple[str, bool]  # provider and rental type


class NewestObservations:
    """Observations by watch and view. Only the evaluator writes, under its lock; reading is thread-safe."""

    def __init__(self) -> None:
        self._found: dict[str, dict[ProviderView, Observation]] = {}

    def note(self, provider: str, spot: bool, observed: Mapping[str, Observation]) -> None:
        """Store the observations of one answer, by the watch's name."""
        for name, observation in observed.items():
            self._found.setdefault(name, {})[provider, spot] = observation

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget all other watches."""
        self._found = {name: found for name, found in self._found.items() if name in watches}

    def of(self, watch: str) -> Mapping[ProviderView, Observation]:
        """Return all observations of a watch, failures and old ones included."""
        return self._found.get(watch, {})

    def newest(self, watch: str, provider: str, spot: bool) -> Observation | None:
        """Return a watch's newest observation at a provider; None: it has not answered yet."""
        return self.of(watch).get((provider, spot))

    def latest_matches(self, watch: str) -> list[Match]:
        """Return the matches in a watch's newest observations, of any age: `current_quotes` selects."""
        return [match for one in list(self.of(watch).values()) for match in one.matches]

    def best_usd_gpu_hour(self, watch: str, now: datetime) -> float | None:
        """Return the lowest GPU price in a watch's current quotes; None: no offers, or not polled lately."""
        current = current_quotes(self.latest_matches(watch), now)
        return min((match.price_microusd_gpu_hour for match in current), default=0.0) / MICRO or None


def unanswered(watches: Sequence[Watch], now: datetime) -> Mapping[str, Observation]:
    """Return the observations when a provider does not answer: no data, which differs from "no offers"."""
    blind = Observation(matches=(), near=False, known=False, observed_at=now)
    return {watch.name: blind for watch in watches}


def with_earlier_matches(newest: Observation, before: Observation | None, offer: Offer) -> Observation:
    """Return the observation of one GPU and count, completed by what was known of the others before."""
    if before is None:
        return newest
    of = offer.gpu, offer.gpu_count
    rest = [match for match in (*before.matches, *before.older) if (match.offer.gpu, match.offer.gpu_count) != of]
    return msgspec.structs.replace(
        newest, older=tuple(rest), near=newest.near or before.near, known=bool(newest.matches) or before.known
    )


class QuoteRequest(NamedTuple):
    """A query that an open window needs: watch and provider, by name."""

    provider: str
    watch: str


class _GatherWindow(msgspec.Struct, frozen=True):
    """A decision that waits for quotes."""

    watch: Watch
    opened: datetime
    missing: frozenset[str]  # providers


class QuoteGathering:
    """Tracks which watches wait, since when, and for which providers.

    The evaluator's lock guards it, except where a method says that it is thread-safe.

    Args:
        gather: longest wait; zero: no wait.
    """

    def __init__(self, gather: timedelta = timedelta(0)) -> None:
        self._gather = gather
        self._open: dict[str, _GatherWindow] = {}
        self._first_asked: dict[str, datetime | None] = {}  # None: not queried yet
        self._requests: queue.SimpleQueue[Sequence[QuoteRequest]] = queue.SimpleQueue()
        self.is_over = False

    @property
    def longest_s(self) -> float:
        """The longest wait of a decision."""
        return self._gather.total_seconds()

    def next_requests(self, within_s: float) -> Sequence[QuoteRequest]:
        """Wait for a window to open and return its requests; empty: none opened in time. Thread-safe."""
        try:
            return self._requests.get(timeout=None if math.isinf(within_s) else max(within_s, 0.0))
        except queue.Empty:
            return ()

    def end(self) -> None:
        """End: no more requests are served. Thread-safe."""
        self.is_over = True
        self._requests.put(())

    def starts(self, provider: str) -> None:
        """Note that it will soon be queried for the first time. This method and the next two are thread-safe."""
        self._first_asked[provider] = None

    def is_starting(self, provider: str) -> bool:
        """Whether its first query is still outstanding."""
        return provider in self._first_asked and self._first_asked[provider] is None

    def started(self, provider: str, asked_at: datetime | None) -> None:
        """Note its first query. None: it does not answer, and the wait for it ends."""
        if asked_at is None:
            self._first_asked.pop(provider, None)
        else:
            self._first_asked[provider] = asked_at

    def waits(
        self, watch: Watch, views: Set[ProviderView], observed: Mapping[ProviderView, Observation], now: datetime
    ) -> bool:
        """Whether its decision waits for more quotes. Requests them when that begins.

        Args:
            views: all views that the watch can rent from.
            observed: the newest observation of each view; a failure counts as an answer.
        """
        if not self._compares(views):
            return False
        opened = self._opened_at(watch, now)
        missing = {view for view in views if view not in observed or not self._is_recent(observed[view], opened)}
        window = _GatherWindow(watch, opened, frozenset(provider for provider, _ in missing))
        if not missing or self._is_over(window, now):
            return False
        is_new = watch.name not in self._open
        self._open[watch.name] = window
        if is_new:
            self._requests.put([QuoteRequest(provider, watch.name) for provider in sorted(window.missing)])
        return True

    def close(self, watch: Watch) -> None:
        """End the wait: the decision was made, or is not needed any more."""
        self._open.pop(watch.name, None)

    def due(self, now: datetime) -> list[Watch]:
        """Watches that have waited long enough."""
        return [one.watch for one in self._open.values() if one.opened > now or self._is_over(one, now)]

    def next_due_s(self, now: datetime) -> float:
        """Return the seconds until the next watch will have waited long enough; infinity: none waits."""
        ends = [self._ends_at(one) for one in self._open.values()]
        soon = [_STARTS_SOON_S if at is None else max((at - now).total_seconds(), 0.0) for at in ends]
        return min(soon, default=math.inf)

    def _is_over(self, window: _GatherWindow, now: datetime) -> bool:
        ends_at = self._ends_at(window)
        return ends_at is not None and now >= ends_at

    def _ends_at(self, window: _GatherWindow) -> datetime | None:
        """Return the end of the wait; None: a provider was not queried yet."""
        asked = [self._first_asked[name] for name in window.missing if name in self._first_asked]
        if None in asked:
            return None
        return max([window.opened, *(at for at in asked if at is not None)]) + self._gather

    def in_order(
        self, watch: Watch, views: Set[ProviderView], recent: Mapping[ProviderView, Observation], now: datetime
    ) -> list[Match]:
        """Return all matches, best first; if quotes are compared, outdated ones last."""
        if not self._compares(views):
            return best_first(watch, (match for one in recent.values() for match in (*one.matches, *one.older)))
        opened = self._opened_at(watch, now)
        young: list[Match] = []
        old: list[Match] = []
        for one in recent.values():
            (young if self._is_recent(one, opened) else old).extend(one.matches)
            old.extend(one.older)
        return [*best_first(watch, young), *best_first(watch, old)]

    def compared(self, watch: Watch, views: Set[ProviderView], observed: Mapping[ProviderView, Observation]) -> str:
        """Describe the comparison in one line: the best GPU price of each provider, and who did not answer in time.

        Empty if there are only one provider's quotes.
        """
        if not self._compares(views) or not observed:
            return ""
        opened = self._opened_at(watch, max(one.observed_at for one in observed.values()))
        best: dict[str, float | None] = {}
        late = set()
        for provider, spot in sorted(views):
            one = observed.get((provider, spot))
            if one is None or not self._is_recent(one, opened) or not one.known:
                late.add(provider)
                continue
            prices = [match.price_microusd_gpu_hour for match in one.matches]
            before = best.get(provider)
            prices += [] if before is None else [before]
            best[provider] = min(prices, default=None)
        gpu_count = watch.gpu_count_max
        priced = sorted((price, name) for name, price in best.items() if price is not None)
        parts = [", ".join(f"{name} {per_unit_hour(price / MICRO, gpu_count)}" for price, name in priced)]
        if none := sorted(name for name, price in best.items() if price is None):
            parts.append(f"no match: {', '.join(none)}")
        if silent := sorted(late - {name for _, name in priced}):
            parts.append(f"no answer within {self._gather.total_seconds():g} s: {', '.join(silent)}")
        return f"{_COMPARED}: " + "; ".join(part for part in parts if part)

    def _compares(self, views: Set[ProviderView]) -> bool:
        """Whether there are several providers to compare."""
        return self._gather > timedelta(0) and len({provider for provider, _ in views}) > 1

    def _opened_at(self, watch: Watch, now: datetime) -> datetime:
        waiting = self._open.get(watch.name)
        return now if waiting is None or waiting.opened > now else waiting.opened

    def _is_recent(self, one: Observation, opened: datetime) -> bool:
        """Whether the answer was younger than `gather` when the watch fired, or came later.

        The duration of the query does not matter: an order fetches a price older than `quote_ttl` again.
        """
        return (one.answered_at or one.observed_at) >= opened - self._gather


def is_under_limit(watch: Watch, match: Match) -> bool:
    """Whether the price is within the limit, which may have fallen since another provider was polled."""
    limit = watch.max_price_usd_gpu_hour
    return watch.auto is None or match.price.price_microusd_hour <= threshold_microusd(limit, match.offer.gpu_count)
