"""Builds the queries of watches and runs them completely: a truncated page without an acceptable offer proves nothing.

- `queries_for`, `watches_by_query`: what is asked, and for which watches.
- `search_complete`, `search_cheapest`, `find_offer`: ask until nothing acceptable can be hidden, or say what may be.
- `why_incomplete`: why requested offers may be missing from an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from gpuwatch.domain.market.money import Commission, least_price_microusd, listed_ceiling_usd, usd
from gpuwatch.domain.market.offer import Identity, Offer
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.engine.market.row_budget import HUNT_ROWS
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Answer, Completeness, Query

F = TypeVar("F")
RENTAL_TYPES = {  # spot?
    SpotPolicy.NO: (False,),
    SpotPolicy.ONLY: (True,),
    SpotPolicy.ANY: (False, True),
    SpotPolicy.FIRST: (False, True),
}
PAGE_ROWS = 64  # the usual page size of a marketplace (vastai.md §0)
_CUT = "its answer was truncated, and a cheaper offer may be missing"
_REASONS_SHOWN = 3


def queries_for(watch: Watch, commission: Commission, limit: int | None = HUNT_ROWS) -> tuple[Query, ...]:
    """Return the queries of a watch: one for each rental type that it accepts.

    Only filters that marketplaces apply correctly are sent; gpuwatch applies the others itself.
    """
    ceiling = listed_ceiling_usd(watch.max_price_usd_gpu_hour, watch.gpu_count_max, commission)
    return tuple(
        Query(
            gpus=watch.gpu_names,
            count_min=watch.gpu_count_min,
            count_max=watch.gpu_count_max,
            spot=spot,
            disk_gb=watch.disk_gb,
            max_listed_usd_hour=float(ceiling) * watch.rearm,
            verified=watch.verified or None,
            min_reliability=watch.min_reliability,
            limit=limit,
        )
        for spot in RENTAL_TYPES[watch.spot]
    )


def search_complete(
    search: Callable[[Query], Answer],
    query: Query,
    read: Callable[[Answer], F],
) -> tuple[Answer, F]:
    """Search with the query's limit; if the answer is truncated and nothing is found in it, search for every row.

    Args:
        search: queries the market; may raise ProviderError.
        read: extracts a result from an answer; called once for each answer. Falsy: nothing is found.

    Returns:
        The last answer and its result.
    """
    answer = search(query)
    found = read(answer)
    if query.limit is None or answer.completeness is not Completeness.TRUNCATED or found:
        return answer, found
    answer = search(msgspec.structs.replace(query, limit=None))
    return answer, read(answer)


def search_cheapest(
    search: Callable[[Query], Answer],
    query: Query,
    commission: Commission,
    read: Callable[[Answer], F],
    highest_kept: Callable[[F], Match | None],
) -> tuple[Answer, F]:
    """Search until no truncated offer can have a lower GPU price than those found.

    Marketplaces sort and truncate by the price of the whole offer: a page of single GPUs hides a machine with eight
    GPUs that costs less for each. Hidden offers cost at least as much as the last row, so only larger machines can be
    cheaper per GPU; the next query is about those alone, and at most one page per number of GPUs is needed.

    Args:
        search: queries the market; may raise ProviderError.
        read: extracts a result; called once after each query, with everything found so far.
        highest_kept: returns the dearest per GPU of the offers that no hidden offer may undercut; None: too few were
            found, and every row is needed.

    Returns:
        Everything found, and the result of `read`. If cheaper hidden offers cannot be ruled out, the answer states why
        in `incomplete_because`.

    Raises:
        ProviderError: no usable answer, and no earlier result to keep.
    """
    whole = search(query)
    found, asked, answer = read(whole), query, whole
    while answer.completeness is Completeness.TRUNCATED:
        kept = highest_kept(found)
        rest = _rest_that_may_be_cheaper(asked, answer.complete_to_usd_hour, kept, commission)
        if rest is None:
            return whole, found
        if rest == asked:
            return _unproven(whole, _CUT), found
        try:
            answer = search(rest)
        except ProviderError as error:
            if kept is None:
                raise
            partial = msgspec.structs.replace(whole, completeness=Completeness.PARTIAL)
            why = str(error).removeprefix(f"{whole.provider}: ")
            return _unproven(partial, f"unknown whether a larger machine is cheaper: {why}"), found
        whole, asked = _joined(whole, answer, rest, query), rest
        found = read(whole)
    return whole, found


def _rest_that_may_be_cheaper(
    asked: Query, known_to: float | None, kept: Match | None, commission: Commission
) -> Query | None:
    """Return the query for possibly cheaper hidden offers; None: there are none; unchanged: no such query exists."""
    ceiling, everything = asked.max_listed_usd_hour, msgspec.structs.replace(asked, limit=None)
    if known_to is not None and ceiling is not None and known_to > ceiling:
        return None
    if known_to is None or kept is None:
        return everything
    price, count = kept.price.price_microusd_hour, kept.offer.gpu_count
    # an offer that costs `least` or more and is cheaper per GPU has more GPUs than least / GPU price
    count_min = least_price_microusd(known_to, commission) * count // max(price, 1) + 1
    if asked.count_max is not None and count_min > asked.count_max:
        return None
    if count_min <= asked.count_min:
        return everything
    if asked.count_max is not None:
        most = float(listed_ceiling_usd(usd(price) / count, asked.count_max, commission))
        ceiling = most if ceiling is None else min(most, ceiling)
    limit = None if asked.limit is None else max(asked.limit, PAGE_ROWS)  # a page of any length costs one search
    return msgspec.structs.replace(asked, count_min=count_min, max_listed_usd_hour=ceiling, limit=limit)


def _joined(first: Answer, later: Answer, asked: Query, query: Query) -> Answer:
    """Merge two answers. A repeated search without a limit replaces the truncated answer."""
    is_all = asked == msgspec.structs.replace(query, limit=None)
    fresh = {offer.identity for offer in later.offers}
    older = () if is_all else (offer for offer in first.offers if offer.identity not in fresh)
    partial = Completeness.PARTIAL in {first.completeness, later.completeness}
    cut = Completeness.PARTIAL if partial else Completeness.TRUNCATED
    return msgspec.structs.replace(
        later,
        offers=sorted((*older, *later.offers), key=lambda offer: (offer.quoted_usd_hour, offer.offer_id)),
        completeness=later.completeness if is_all else cut,
        rows=first.rows + later.rows,
        searches=first.searches + later.searches,
        skipped=later.skipped if is_all else Counter(first.skipped) + Counter(later.skipped),
        not_listed=tuple(dict.fromkeys((*first.not_listed, *later.not_listed))),
        drift=tuple(dict.fromkeys((*first.drift, *later.drift))),
        complete_to_usd_hour=later.complete_to_usd_hour if is_all else first.complete_to_usd_hour,
        incomplete_because="; ".join(dict.fromkeys(filter(None, (first.incomplete_because, later.incomplete_because)))),
        elapsed_s=first.elapsed_s + later.elapsed_s,
    )


def highest_priced(matches: Iterable[Match | None]) -> Match | None:
    """Return the match with the highest GPU price, over several searchers; None: one of them found nothing."""
    found = tuple(matches)
    known = [match for match in found if match is not None]
    if not known or len(known) < len(found):
        return None
    return max(known, key=lambda match: match.price_microusd_gpu_hour)


def _unproven(answer: Answer, why: str) -> Answer:
    texts = dict.fromkeys(filter(None, (answer.incomplete_because, why)))
    return msgspec.structs.replace(answer, incomplete_because="; ".join(texts))


def why_incomplete(answer: Answer) -> str | None:
    """Return in one line why requested offers may be missing; None: none are, or only dearer ones.

    If a partial answer states no reason, the reason is among its skipped rows.
    """
    if answer.incomplete_because:
        is_part = answer.completeness is Completeness.PARTIAL
        return f"answered only in part: {answer.incomplete_because}" if is_part else answer.incomplete_because
    if answer.completeness is not Completeness.PARTIAL:
        return None
    skipped = sorted(answer.skipped.items(), key=lambda item: -item[1])[:_REASONS_SHOWN]
    reasons = "; ".join(f"{reason} ({rows})" for reason, rows in skipped)
    return f"answered only in part: {reasons}" if reasons else "answered only in part"


def find_offer(search: Callable[[Query], Answer], query: Query, wanted: Identity) -> tuple[Answer, Offer | None]:
    """Return the answer, and one offer as it is now; None: the answer does not contain it."""
    return search_complete(
        search, query, lambda answer: next((offer for offer in answer.offers if offer.identity == wanted), None)
    )


def watches_by_query(watches: Sequence[Watch], commission: Commission) -> Mapping[Query, Sequence[Watch]]:
    """Group watches by query, so that they share one search; jobs that differ only in limits use the highest."""
    found: dict[Query, list[Watch]] = {}
    loosest: dict[Query, tuple[Query, list[Watch]]] = {}
    for watch in watches:
        for query in queries_for(watch, commission):
            if watch.purpose.job is None:
                found.setdefault(query, []).append(watch)
                continue
            unlimited = msgspec.structs.replace(query, max_listed_usd_hour=None)
            most, sharing = loosest.get(unlimited, (query, []))
            higher = max(most, query, key=lambda one: one.max_listed_usd_hour or 0.0)
            loosest[unlimited] = (higher, [*sharing, watch])
    for query, sharing in loosest.values():
        found.setdefault(query, []).extend(sharing)
    return found
