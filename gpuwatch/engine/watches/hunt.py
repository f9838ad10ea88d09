"""The hunt: small queries, cheapest first, at or under the watches' limits; each answer leads to a decision at once.

If a provider accepts several GPU names in one search, watches share queries (`domain/watches/query_plan`).
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import msgspec

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.choice import is_by_gpu_price
from gpuwatch.domain.watches.decide import Match, Observation
from gpuwatch.domain.watches.match import without_country
from gpuwatch.domain.watches.query_plan import MAX_PRIORITY, MIN_PRIORITY, Demand, PollingLimits, SharedQuery, split
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.market.query_planner import QueryPlanner
from gpuwatch.engine.market.watch_search import (
    RENTAL_TYPES,
    highest_priced,
    search_cheapest,
    watches_by_query,
)
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.engine.watches.gather import unanswered, with_earlier_matches
from gpuwatch.errors import ProviderError, QuotaSpent, RateLimited, StoreError
from gpuwatch.ports import Answer, Completeness, Market, Query

log = logging.getLogger(__name__)

HuntRecorder = Callable[[Query, Answer | ProviderError, datetime], None]

# (watch, now, when its last answered poll was sent, by spot) -> the watch with its current limit; may raise StoreError
CurrentLimit = Callable[[Watch, datetime, Mapping[bool, datetime]], Watch]

WatchObservations = Mapping[str, Observation]  # by the watch's name


class Hunter:
    """The hunt at one provider. One round at a time.

    Args:
        record: stores an answer or a failure after the decision.
        current_limit: for watches with `max_price = "auto"`, or with limits from past prices.
        planner: joins the queries of several watches; None: each distinct query is sent separately.
        started_at: prices stored since then are new to a watch that has no answer yet; None: since the first round.
    """

    def __init__(  # noqa: PLR0913 each is a collaborator of its own
        self,
        market: Market,
        watches: Sequence[Watch],
        commission: Commission,
        evaluator: Evaluator,
        record: HuntRecorder,
        stopping: threading.Event,
        *,
        current_limit: CurrentLimit = lambda watch, _now, _polled_at: watch,
        job_watches: Callable[[], Sequence[Watch]] = tuple,
        planner: QueryPlanner | None = None,
        started_at: datetime | None = None,
    ) -> None:
        self.market = market
        self._started_at = started_at
        self._watches = tuple(watches)
        self._commission = commission
        self._limited: list[Watch] | None = None  # the watches with the limits of the last round
        self._watches_of = watches_by_query(watches, commission)
        self._evaluator = evaluator
        self._record = record
        self._stopping = stopping
        self._current_limit = current_limit
        self._job_watches = job_watches
        self._planner = planner
        self._polled_at: dict[Query, datetime] = {}
        self._rows: dict[Query, int] = {}  # rows of the last answer to each query
        self._answered_at: dict[tuple[str, bool], datetime] = {}  # by watch and spot: request of its last answer
        self._asked: dict[Query, int] = {}  # number of its last poll: clocks may step back
        self._numbers = itertools.count(1)
        self._took_s: dict[Query, float] = {}  # duration of the last answer
        self._unproven: set[Query] = set()  # queries reported because a cheaper offer may be missing
        self._reported_places: set[str] = set()  # watches whose `regions` excluded such offers
        self._may_hurry = True
        self.attempts = 0  # queries that were sent, or that the provider's own hold stopped

    @property
    def is_stopping(self) -> bool:
        """Whether gpuwatch is stopping, so that no other round begins."""
        return self._stopping.is_set()

    def poll_soon(self, watch: str) -> None:
        """Make its queries due at once, because quotes of several providers are being compared. Thread-safe."""
        for query, watches in list(self._watches_of.items()):
            if any(one.name == watch for one in watches):
                self._polled_at.pop(query, None)

    def poll_best_offer(self, name: str, gather_s: float, clock: Callable[[], datetime]) -> bool:
        """Query only a watch's best known offer, if its full query takes too long to wait for.

        Thread-safe, also during a round.

        Returns:
            False: nothing was sent, because the full query is quick or no offer is known.
        """
        slow = [
            (query, watch)
            for query, watches in list(self._watches_of.items())
            for watch in watches
            if watch.name == name and self._took_s.get(query, 0.0) > gather_s / 2
        ]
        polled = False
        for query, watch in slow:
            before = self._evaluator.observations.newest(name, self.market.name, query.spot)
            best = next(iter(before.matches), None) if before is not None else None
            if best is not None:
                self._poll_best_offer(query, watch, best, clock)
                polled = True
        return polled

    def _poll_best_offer(self, query: Query, watch: Watch, best: Match, clock: Callable[[], datetime]) -> None:
        offer, name = best.offer, self.market.name
        part = msgspec.structs.replace(query, gpus=(offer.gpu,), count_min=offer.gpu_count, count_max=offer.gpu_count)
        try:
            answer = self.market.search(part)
        except ProviderError as error:
            log.info("no quote in time: %s", error, extra={"provider": name, "watch": watch.name})
            return
        shown = self._evaluator.observe([watch], answer, clock())[watch.name]
        before = self._evaluator.observations.newest(watch.name, name, query.spot)
        observed = {watch.name: with_earlier_matches(shown, before, offer)}
        with _store_errors_logged(name):
            self._evaluator.evaluate([watch], name, query.spot, observed, clock())

    @property
    def queries(self) -> int:
        """The number of distinct queries in a round."""
        return len(self._watches_of)

    @property
    def matched_rows(self) -> Sequence[int]:
        """How many rows each query last returned, of those that returned any."""
        return [rows for rows in self._rows.values() if rows]

    @property
    def is_planned(self) -> bool:
        """Whether queries may be joined; then a plan, instead of rounds, decides what is due."""
        return self._planner is not None and len(self._watches_of) > 1

    def run_round(
        self,
        clock: Callable[[], datetime],
        poll_every_s: float,
        matched_every_s: float,
        limits: PollingLimits | None = None,
        *,
        may_hurry: bool = True,
    ) -> None:
        """Poll every due query, the longest unpolled first; decide on each answer before the next query.

        A rate limit or a used-up quota ends the round: the next one begins with the remaining queries.

        Args:
            matched_every_s: poll interval of a query that returns rows, without a plan.
            limits: for the plan; None: no plan.
            may_hurry: whether a query that returns rows keeps its full pace while a watch of it is about to rent.
        """
        self._may_hurry = may_hurry
        self._apply_current_limits(clock())
        if self._planner is not None and limits is not None and self.is_planned:
            self._run_planned(self._planner, limits, clock)
            return
        for query, watches in sorted(self._watches_of.items(), key=lambda item: self._asked.get(item[0], 0)):
            if self._stopping.is_set():
                return
            every_s = matched_every_s if self._rows.get(query) and not self._hurries(watches) else poll_every_s
            if self._since_poll_s(query, clock()) < every_s * 0.9:
                continue
            if _is_refusal(self._poll(query, watches, clock)):
                return

    def _hurries(self, watches: Sequence[Watch]) -> bool:
        """Whether rows are spent on a machine that one of the watches is about to rent."""
        return self._may_hurry and any(map(self._evaluator.may_rent_more, watches))

    def _since_poll_s(self, query: Query, now: datetime) -> float:
        """Return the seconds since its last poll; infinity if never, or if the clock stepped back."""
        polled_at = self._polled_at.get(query)
        # a poll in the future does not count as recent
        return math.inf if polled_at is None or polled_at > now else (now - polled_at).total_seconds()

    # --- shared queries -----------------------------------------------------------------------------------------------

    def _run_planned(self, planner: QueryPlanner, limits: PollingLimits, clock: Callable[[], datetime]) -> None:
        """Send due queries, most overdue first; at most as many as the plan has."""
        early_s = min(limits.poll_every_s, limits.search_interval_s) / 2  # until the next check for due queries
        left = math.inf
        while left > 0 and not self._stopping.is_set():
            now = clock()
            demands = [self._demand(query, watches, planner, now) for query, watches in self._watches_of.items()]
            plan = planner.plan(demands, limits, now)
            left = min(left, len(plan.queries)) - 1
            waited = {query: self._wait_of_shared_s(query, now) for query in plan.queries}
            due = [one for one, unasked_s in waited.items() if unasked_s >= max(one.every_s - early_s, 0.0)]
            if not due:
                return
            if not self._poll_shared(planner, max(due, key=lambda one: waited[one] / max(one.every_s, 1e-9)), clock):
                return

    def _demand(self, query: Query, watches: Sequence[Watch], planner: QueryPlanner, now: datetime) -> Demand:
        """Return a query's demand: low after a match, which is known; highest while a machine is still wanted."""
        names = tuple(watch.name for watch in watches)
        if not self._rows.get(query):
            return Demand(query=query, watches=names, priority=planner.priority(query, watches, now))
        if self._hurries(watches):
            return Demand(query=query, watches=names, priority=MAX_PRIORITY, respects_row_budget=False)
        return Demand(query=query, watches=names, priority=MIN_PRIORITY)

    def _wait_of_shared_s(self, shared: SharedQuery, now: datetime) -> float:
        return max(self._since_poll_s(demand.query, now) for demand in shared.demands)

    def _poll_shared(self, planner: QueryPlanner, shared: SharedQuery, clock: Callable[[], datetime]) -> bool:
        """Query for several watches at once, then in parts if the answer is incomplete; False: the provider refused."""
        queries = [demand.query for demand in shared.demands]
        if len(queries) == 1:
            answer = self._poll(queries[0], self._watches_of[queries[0]], clock)
            return not _is_refusal(answer)
        found = self._search_joined(shared, clock)
        if isinstance(found, Answer) and found.completeness is not Completeness.COMPLETE:
            planner.forget_plan()
            return all(self._poll_shared(planner, part, clock) for part in split(shared))
        return not _is_refusal(found)

    def _search_joined(self, shared: SharedQuery, clock: Callable[[], datetime]) -> Answer | ProviderError:
        """Send one search for all; a truncated answer is recorded, but leads to no decision."""
        queries = [demand.query for demand in shared.demands]
        watches = list({watch.name: watch for query in queries for watch in self._watches_of[query]}.values())
        number, asked_at = next(self._numbers), clock()
        self.attempts += 1
        try:
            answer: Answer | ProviderError = self.market.search(shared.query)
        except ProviderError as error:
            answer = error
        if isinstance(answer, ProviderError) or answer.completeness is Completeness.COMPLETE:
            if isinstance(answer, Answer) or answer.was_sent:
                self._asked.update(dict.fromkeys(queries, number))
                self._polled_at.update(dict.fromkeys(queries, asked_at))
            self._decide_joined(shared, watches, answer, asked_at, clock)
        self._record(shared.query, answer, clock())
        return answer

    def _decide_joined(
        self,
        shared: SharedQuery,
        watches: Sequence[Watch],
        answer: Answer | ProviderError,
        asked_at: datetime,
        clock: Callable[[], datetime],
    ) -> None:
        spot = shared.query.spot
        if isinstance(answer, Answer):
            observed = self._evaluator.observe(watches, answer, clock())
            self._answered_at.update({(watch.name, spot): asked_at for watch in watches})
            for demand in shared.demands:
                self._took_s[demand.query] = answer.elapsed_s
                self._rows[demand.query] = sum(bool(observed[name].matches) for name in demand.watches)
        else:
            observed = unanswered(watches, clock())
            for demand in shared.demands:
                self._rows.pop(demand.query, None)
        with _store_errors_logged(self.market.name):
            self._evaluator.evaluate(watches, self.market.name, spot, observed, clock())
        if isinstance(answer, Answer):
            self._log_without_country(watches, answer, clock())

    def _apply_current_limits(self, now: datetime) -> None:
        """Poll at or under the current limits; skip a watch whose limit is unknown."""
        waiting = self._job_watches()
        if not waiting and self._limited is None and all(watch.has_fixed_limit for watch in self._watches):
            return
        limited = []
        for watch in (*waiting, *self._watches):
            try:
                limited.append(self._current_limit(watch, now, self._last_answers(watch, now)))
            except StoreError as error:
                log.error("watch %s: its limit is unknown: %s", watch.name, error)  # noqa: TRY400
            except Exception:  # a broken history must not blind the provider's other watches
                log.exception("watch %s: cannot compute its limit; it is not polled", watch.name)
        if limited == self._limited:
            return
        self._limited, self._watches_of = limited, watches_by_query(limited, self._commission)
        for known in (self._polled_at, self._rows, self._asked, self._took_s):
            for query in known.keys() - self._watches_of.keys():
                known.pop(query, None)
        self._unproven &= self._watches_of.keys()
        names = {watch.name for watch in (*waiting, *self._watches)}  # jobs come and go
        self._answered_at = {key: at for key, at in self._answered_at.items() if key[0] in names}
        self._reported_places &= names

    def _last_answers(self, watch: Watch, now: datetime) -> Mapping[bool, datetime]:
        """Return when the watch's last answers, on demand and spot, were requested; before the first one, the start."""
        first = self._started_at or now
        return {spot: self._answered_at.setdefault((watch.name, spot), first) for spot in RENTAL_TYPES[watch.spot]}

    def _poll(self, query: Query, watches: Sequence[Watch], clock: Callable[[], datetime]) -> Answer | ProviderError:
        """Search, match, decide, reserve and start; then record the answer."""
        asked_at = clock()
        self.attempts += 1
        self._polled_at[query], self._asked[query] = asked_at, next(self._numbers)
        answer: Answer | ProviderError
        try:
            answer, observed = self._search(query, watches, clock)
            self._answered_at.update({(watch.name, query.spot): asked_at for watch in watches})
            self._rows[query] = answer.rows
            self._took_s[query] = answer.elapsed_s
        except ProviderError as error:
            answer, observed = error, unanswered(watches, clock())
            self._rows.pop(query, None)  # a failure costs no rows: try again at full pace
            if not error.was_sent:
                del self._asked[query], self._polled_at[query]
        with _store_errors_logged(self.market.name):
            self._evaluator.evaluate(watches, self.market.name, query.spot, observed, clock())
        self._record(query, answer, clock())
        if isinstance(answer, Answer):
            self._log_without_country(watches, answer, clock())
        return answer

    def _search(
        self, query: Query, watches: Sequence[Watch], clock: Callable[[], datetime]
    ) -> tuple[Answer, WatchObservations]:
        """Return the answer and each watch's observation, with its cheapest offer even if the answer was truncated."""

        def highest_kept(observed: WatchObservations) -> Match | None:
            # the cheapest job or the fastest offer per dollar may be anywhere; watches that only alert go by GPU price
            by_price = [watch for watch in watches if is_by_gpu_price(watch)]
            if any(watch not in by_price and self._evaluator.will_rent(watch) for watch in watches):
                return None
            return highest_priced(next(iter(observed[watch.name].matches), None) for watch in by_price or watches)

        answer, observed = search_cheapest(
            self.market.search,
            query,
            self._commission,
            lambda answer: self._evaluator.observe(watches, answer, clock()),
            highest_kept,
        )
        self._log_unproven(query, answer)
        return answer, observed

    def _log_without_country(self, watches: Sequence[Watch], answer: Answer, now: datetime) -> None:
        """Warn once per watch that `regions` excludes offers that may be in the right country."""
        name = self.market.name
        for watch in watches:
            if not watch.regions or watch.name in self._reported_places:
                continue
            if placeless := without_country(watch, answer.offers, {name: self._commission}, now):
                self._reported_places.add(watch.name)
                text = "watch %s: offers at %s state no country, so `regions` excludes them: %d at or under its limit"
                log.warning(text, watch.name, name, len(placeless), extra={"provider": name, "watch": watch.name})

    def _log_unproven(self, query: Query, answer: Answer) -> None:
        """Warn that a cheaper offer may be missing: once, and again after a complete answer."""
        if not answer.incomplete_because:
            self._unproven.discard(query)
        elif answer.offers and query not in self._unproven:
            self._unproven.add(query)
            log.warning("%s: %s", self.market.name, answer.incomplete_because, extra={"provider": self.market.name})


@contextmanager
def _store_errors_logged(provider: str) -> Iterator[None]:
    """Log store errors. What is not stored was neither started nor reported; the next poll tries again."""
    try:
        yield
    except StoreError as error:
        log.error("cannot store a decision: %s", error, extra={"provider": provider})  # noqa: TRY400


def _is_refusal(answer: Answer | ProviderError) -> bool:
    return isinstance(answer, RateLimited | QuotaSpent)
