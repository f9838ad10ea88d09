"""One poll now, for `gpuwatch check`: few queries for many watches, and a report of what is still unknown.

A daemon polls per watch and can take its time. A person waits, and searches are seconds apart (`search_interval`), so
watches that differ only in GPU, price and disk share one query. A watch that the shared answer does not settle gets
a query of its own.

The result as text lines: `decision_line` and `comparison_lines` say what the daemon would decide and by which rule;
`explain` shows why a watch does not match: the nearest offers, and the clauses that rejected them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.domain.market.money import Commission, per_unit_hour
from gpuwatch.domain.market.offer import Identity, hardware_text, marks
from gpuwatch.domain.watches.choice import (
    NearMiss,
    best_first,
    compare,
    is_by_gpu_price,
    nearest,
    nearest_by_price,
    tie_of,
)
from gpuwatch.domain.watches.computed_limits import reputation_basis
from gpuwatch.domain.watches.decide import Decision, Match, Observation, WatchMemory, decide
from gpuwatch.domain.watches.match import matches, without_country
from gpuwatch.domain.watches.past_limits import machine_record_of, reputation
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts.offer_alerts import decision_text
from gpuwatch.engine.market.watch_search import PAGE_ROWS, queries_for, search_cheapest, search_complete, why_incomplete
from gpuwatch.errors import NoRowUnderstood, ProviderError, ProviderUnreachable
from gpuwatch.ports import Answer, Completeness, Market, Query

NONE_USABLE = "none of the rows can be used"  # a key of `skipped`; `error` gives the reason
_TIED_SHOWN = 3


class ProviderReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider answered. `ok`: the answers cover everything that was queried."""

    provider: str
    ok: bool
    offers: int
    skipped: Mapping[str, int]  # reason → number of rows that could not be used
    elapsed_s: float
    error: str | None = None
    not_listed: frozenset[str] = frozenset()  # queried GPUs that no answer of this provider can contain
    without_country: Mapping[str, int] = {}  # watch → offers that only `regions` rejects, because they state no country


class ProviderCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check at one provider."""

    report: ProviderReport
    answers: Sequence[tuple[Query, Answer]]
    matches: Mapping[str, tuple[Match, ...]]  # watch → cheapest GPU price first
    nearest: Mapping[str, Match] = {}  # watch without a match → the cheapest offer that only its price rejects


def check_provider(
    market: Market,
    watches: Sequence[Watch],
    commission: Commission,
    clock: Callable[[], datetime],
    *,
    at_any_price: bool = False,
) -> ProviderCheck:
    """Poll one provider for all watches. A ProviderError is reported, not raised.

    Args:
        at_any_price: search without the price limits, so that the nearest offer above a limit is known, too. It takes
            no more searches, but more rows: up to a page for each query.
    """
    round_ = _Round(market, watches, commission, clock)
    for query, asked in shared_queries(watches, commission).items():
        with suppress(ProviderError):  # it is in the report
            round_.search_for(query, asked, at_any_price=at_any_price)
    return round_.result()


def not_checked(provider: str, error: str) -> ProviderCheck:
    """Return the result for a provider that could not be polled at all."""
    report = ProviderReport(provider=provider, ok=False, offers=0, skipped={}, elapsed_s=0.0, error=error)
    return ProviderCheck(report=report, answers=(), matches={})


def shared_queries(watches: Sequence[Watch], commission: Commission) -> dict[Query, list[Watch]]:
    """Return as few queries as the rental types and filters allow, each with its watches."""
    groups: dict[tuple[bool, bool | None, float | None], list[tuple[Query, Watch]]] = {}
    for watch in watches:
        for query in queries_for(watch, commission, PAGE_ROWS):
            groups.setdefault((query.spot, query.verified, query.min_reliability), []).append((query, watch))
    return {_shared([query for query, _ in group]): [watch for _, watch in group] for group in groups.values()}


def _shared(queries: Sequence[Query]) -> Query:
    """Return one query whose answer contains the offers of all these queries."""
    if len(queries) == 1:
        return queries[0]
    disks = [query.disk_gb for query in queries]
    open_counts = any(query.count_max is None for query in queries)
    return msgspec.structs.replace(
        queries[0],
        gpus=tuple(dict.fromkeys(gpu for query in queries for gpu in query.gpus)),
        count_min=min(query.count_min for query in queries),
        count_max=None if open_counts else max(query.count_max or 0 for query in queries),
        # the smallest disk gives the lowest price, so the price limit excludes nothing that fits a bigger one
        disk_gb=None if None in disks else min(disk for disk in disks if disk is not None),
        max_listed_usd_hour=max(query.max_listed_usd_hour or 0.0 for query in queries),
    )


class _Round:
    """The queries of one check at one provider, and their answers."""

    def __init__(
        self, market: Market, watches: Sequence[Watch], commission: Commission, clock: Callable[[], datetime]
    ) -> None:
        self._market = market
        self._watches = watches
        self._commission = commission
        self._clock = clock
        self._answers: list[tuple[Query, Answer]] = []
        self._errors: list[str] = []
        self._unreachable: ProviderUnreachable | None = None  # then the other queries are skipped: they would only wait
        self._failed_s = 0.0  # seconds spent on queries without an answer
        self._unread: Counter[str] = Counter()  # reason → rows of answers without any usable row
        self._found: dict[str, dict[Identity, Match]] = {watch.name: {} for watch in watches}
        self._placeless: dict[str, set[Identity]] = {watch.name: set() for watch in watches if watch.regions}

    def search_for(self, query: Query, watches: Sequence[Watch], *, at_any_price: bool) -> None:
        """Search for several watches at once, then for each watch that this leaves open. Raises ProviderError."""
        # the cheapest come first: a page that leaves a watch open is the one that its limit would have returned
        answer = self._search(msgspec.structs.replace(query, max_listed_usd_hour=None) if at_any_price else query)
        self._read(answer)
        for watch in watches:
            if not self._settled(watch, answer):
                self._search_alone(watch, query, answer)

    def _search_alone(self, watch: Watch, shared: Query, shared_answer: Answer) -> None:
        # the cheapest offer for a whole job may be anywhere in the list
        rows = PAGE_ROWS if watch.max_job_cost_usd is None else None
        own = next(q for q in queries_for(watch, self._commission, rows) if q.spot == shared.spot)
        with suppress(ProviderError):  # it is in the report, and the next watch may succeed
            answer, _ = search_cheapest(
                lambda query: shared_answer if query == shared else self._search(query),
                own,
                self._commission,
                self._read,
                lambda found: found[watch.name] if is_by_gpu_price(watch) else None,
            )
            if answer.completeness is Completeness.TRUNCATED and answer.incomplete_because:
                self._errors.append(f"watch {watch.name!r}: {answer.incomplete_because}")

    def _search(self, query: Query) -> Answer:
        if self._unreachable is not None:
            raise self._unreachable
        began = self._clock()
        try:
            answer = self._market.search(query)
        except ProviderError as error:
            self._failed_s += max(0.0, (self._clock() - began).total_seconds())
            self._errors.append(str(error).removeprefix(f"{self._market.name}: "))
            self._unreachable = error if isinstance(error, ProviderUnreachable) else None
            if isinstance(error, NoRowUnderstood):
                self._unread[NONE_USABLE] += error.rows
            raise
        self._answers.append((query, answer))
        if (why := why_incomplete(answer)) is not None:
            self._errors.append(why)
        return answer

    def _read(self, answer: Answer) -> Mapping[str, Match | None]:
        """Match every watch, and return the best offer for each. Later answers replace earlier ones."""
        now, commissions = self._clock(), {answer.provider: self._commission}
        found = {watch.name: matches(watch, answer.offers, commissions, now) for watch in self._watches}
        for name, mine in found.items():
            self._found[name].update((match.offer.identity, match) for match in mine)
        for watch in self._watches:
            if watch.regions:
                placeless = without_country(watch, answer.offers, commissions, now)
                self._placeless[watch.name].update(offer.identity for offer in placeless)
        return {name: mine[0] if mine else None for name, mine in found.items()}

    def _settled(self, watch: Watch, answer: Answer) -> bool:
        """Whether the watch needs no search of its own: the answer contains every offer that it could accept."""
        if answer.completeness is not Completeness.TRUNCATED:
            return True  # what a partial answer lacks is in the report; another search would lack it, too
        known_to = answer.complete_to_usd_hour
        ceilings = [q.max_listed_usd_hour for q in queries_for(watch, self._commission)]
        return known_to is not None and all(c is not None and c < known_to for c in ceilings)

    def result(self) -> ProviderCheck:
        seen = {offer.identity for _, answer in self._answers for offer in answer.offers}
        report = ProviderReport(
            provider=self._market.name,
            ok=not self._errors,
            offers=len(seen),
            skipped=sum((Counter(answer.skipped) for _, answer in self._answers), self._unread),
            elapsed_s=sum(answer.elapsed_s for _, answer in self._answers) + self._failed_s,
            error="; ".join(dict.fromkeys(self._errors)) or None,
            not_listed=frozenset(gpu for _, answer in self._answers for gpu in answer.not_listed),
            without_country={name: len(offers) for name, offers in self._placeless.items() if offers},
        )
        found = {watch.name: tuple(best_first(watch, self._found[watch.name].values())) for watch in self._watches}
        return ProviderCheck(report=report, answers=self._answers, matches=found, nearest=self._nearest())

    def _nearest(self) -> dict[str, Match]:
        offers = [offer for _, answer in self._answers for offer in answer.offers]
        now, commissions = self._clock(), {self._market.name: self._commission}
        misses = {
            watch.name: nearest_by_price(watch, offers, commissions, now)
            for watch in self._watches
            if not self._found[watch.name]
        }
        return {name: match for name, match in misses.items() if match is not None}


def decision_line(
    watch: Watch, checked: Sequence[ProviderCheck], memory: WatchMemory | None, now: datetime, zone: str
) -> str:
    """Return the decision reason that the daemon would find in this poll, as alerts and the log show it."""
    decision = decision_of(watch, checked, memory, now, zone)
    return f"{watch.name}: {decision_text(watch, decision, ZoneInfo(zone))}"


def decision_of(
    watch: Watch, checked: Sequence[ProviderCheck], memory: WatchMemory | None, now: datetime, zone: str
) -> Decision:
    """Return the decision that the daemon would make on this poll."""
    found = best_first(watch, (match for part in checked for match in part.matches.get(watch.name, ())))
    known = all(part.report.ok for part in checked)
    look = Observation(matches=tuple(found), known=known, near=bool(found), observed_at=now)
    return decide(watch, look, memory or WatchMemory(), now, zone)


def comparison_lines(watch: Watch, checked: Sequence[ProviderCheck]) -> Iterator[str]:
    """Describe what was compared, which offers tied, and which rule decided; empty without a match.

    Before a launch, gpuwatch compares its current quotes again.
    """
    found = compare(watch, [match for part in checked for match in part.matches.get(watch.name, ())])
    if not found.ordered:
        return
    counts = Counter(match.offer.provider for match in found.ordered)
    silent = [part.report.provider for part in checked if not part.report.ok]
    without = f"; no complete answer from {' and '.join(silent)}" if silent else ""
    yield f"  compared: {', '.join(f'{count} at {name}' for name, count in sorted(counts.items()))}{without}"
    if found.tied > 1:
        share = 0.0 if watch.max_job_cost_usd is not None else tie_of(watch)
        more = "" if found.tied <= _TIED_SHOWN else f" and {found.tied - _TIED_SHOWN} more"
        equal = f"within {share * 100:g} % of the best" if share else "equal"
        yield f"  tied, {equal}: {'; '.join(map(_match_text, found.ordered[: min(found.tied, _TIED_SHOWN)]))}{more}"
    yield f"  best: {_match_text(found.ordered[0])}, by {found.rule}"
    if watch.min_reputation is not None:
        offer = found.ordered[0].offer
        is_ = reputation(offer.reliability, machine_record_of(offer, watch.records))
        yield f"  reputation of its machine: {is_:.3f} ({reputation_basis(watch, offer)})"


def _match_text(match: Match) -> str:
    offer, price = match.offer, match.price
    per_gpu = per_unit_hour(price.gpu_price_usd_hour(offer.gpu_count), offer.gpu_count)
    shown = ", ".join((f"offer {offer.offer_id}", per_gpu, *marks(offer)))
    return f"{hardware_text(offer.gpu, offer.gpu_count)} at {offer.provider}, {shown}"


def explain(watch: Watch, market: Market, commissions: Mapping[str, Commission], now: datetime) -> Iterator[str]:
    """Search the watch's GPUs at any price and host; return why the nearest offers were rejected."""
    yield f"{watch.name} at {market.name}:"
    any_line = False
    for query in queries_for(watch, commissions.get(market.name, Commission()), PAGE_ROWS):
        wide = msgspec.structs.replace(
            query,
            count_min=min(query.count_min, 1),
            count_max=None,
            max_listed_usd_hour=None,
            verified=None,
            min_reliability=None,
        )
        try:
            answer, misses = search_complete(
                market.search, wide, lambda found: nearest(watch, found.offers, commissions, now)
            )
        except ProviderError as error:
            yield f"  cannot tell: {error}"
            return
        any_line = any_line or bool(misses)
        yield from map(_line, misses)
    if not any_line:
        yield "  no offer was rejected: " + ("there is none with these GPUs" if not answer.offers else "all match")


def _line(miss: NearMiss) -> str:
    offer = miss.offer
    what = f"{hardware_text(offer.gpu, offer.gpu_count)}, offer {offer.offer_id}, machine {offer.machine_id or '–'}"
    return f"  {what}: {'; '.join(failure.text for failure in miss.failures)}"
