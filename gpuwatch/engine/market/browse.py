"""Searches a market without a watch, for `gpuwatch offers`.

1. `offer_filter` turns the command's options into a filter.
2. `search_offers` asks one provider at a time.
3. `sorted_offers` and `group_offers` join the answers: one list with resold stock shown once, or groups.
4. `empty_text` says what an empty result leaves open although every provider answered: cards that one cannot list, rows
   that were not understood.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from statistics import median
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import Commission, OfferPrice, listed_ceiling_usd, price_of, threshold_microusd
from gpuwatch.domain.market.offer import NO_GPU, Offer, OfferKind, is_slice
from gpuwatch.domain.market.resold import FoldedOffer, fold_resold
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.expression import holds, parse
from gpuwatch.domain.watches.match import rank
from gpuwatch.engine.market.watch_search import PAGE_ROWS, highest_priced, search_cheapest, why_incomplete
from gpuwatch.errors import ProviderDown, ProviderError, ResourceNotFound, UsageError
from gpuwatch.ports import Answer, Completeness, Market, Query

_COUNT = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")


class OfferFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The offers to search for; None: any."""

    gpu_names: tuple[str, ...] = ()
    count_min: int = 1
    count_max: int | None = None
    max_price_usd_gpu_hour: Decimal | None = None
    spots: tuple[bool, ...] = (False,)
    disk_gb: float | None = None
    verified: bool = False
    kinds: frozenset[OfferKind] = frozenset(OfferKind)
    when: str | None = None  # a condition, as in a watch

    @property
    def wants_no_gpu(self) -> bool:
        """Whether it is about machines without GPUs."""
        return self.gpu_names == (NO_GPU,)

    def meets_condition(self, offer: Offer, price: OfferPrice) -> bool:
        """Whether the condition certainly holds for an offer."""
        return self.when is None or holds(parse(self.when), offer, price) is True

    def has_count(self, gpu_count: int) -> bool:
        """Whether an offer has an accepted number of GPUs."""
        return self.count_min <= gpu_count and (self.count_max is None or gpu_count <= self.count_max)


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What the answers of one provider cannot contain.

    `not_listed`: queried GPUs that it has no name for, or that its adapter has no machine of. `skipped`: reason → rows.
    """

    provider: str
    not_listed: Collection[str] = frozenset()
    skipped: Mapping[str, int] = {}


class ProviderOffers(msgspec.Struct, frozen=True, kw_only=True):
    """The matching offers of one provider. `error`: why matches may be missing, in one line; None: none are."""

    provider: str
    matches: Sequence[Match] = ()  # cheapest GPU price first
    error: str | None = None
    coverage: Coverage | None = None  # None: it did not answer


def offer_filter(  # noqa: PLR0913 one for each option of the command
    gpu: Sequence[str],
    *,
    count: str | None = None,
    max_price: str | None = None,
    spot: str = "no",
    disk_gb: float | None = None,
    verified: bool = False,
    kind: str = "all",
    when: str | None = None,
) -> OfferFilter:
    """Build the filter from a command's options. Raises UsageError: one line that states what was expected."""
    low, high = _counts(count)
    names = tuple(dict.fromkeys(name for text in gpu for name in _names(text)))
    if NO_GPU in names:
        if names != (NO_GPU,) or count is not None:
            raise UsageError("--gpu none: it is a machine without GPUs; expected no other --gpu and no --count")
        low, high = 0, 0
    return OfferFilter(
        gpu_names=names,
        count_min=low,
        count_max=high,
        max_price_usd_gpu_hour=_price(max_price),
        spots={"no": (False,), "only": (True,), "any": (False, True)}[spot],
        disk_gb=disk_gb,
        verified=verified,
        kinds=frozenset(OfferKind) if kind == "all" else frozenset({OfferKind(kind)}),
        when=_condition(when),
    )


def _condition(text: str | None) -> str | None:
    if text is not None:
        try:
            parse(text)
        except ValueError as fault:
            raise UsageError(f"--when {text!r}: {fault}") from None
    return text


def _names(text: str) -> tuple[str, ...]:
    if text.strip().casefold() == NO_GPU:
        return (NO_GPU,)
    names = catalog().wanted(text) or catalog().unlisted(text)
    if not names:
        hints = catalog().suggest(text)
        hint = f"; did you mean {', '.join(hints)}?" if hints else ""
        raise ResourceNotFound(f"--gpu: no GPU is called {text!r}{hint}")
    return names


def _counts(text: str | None) -> tuple[int, int | None]:
    if text is None:
        return 1, None
    found = _COUNT.fullmatch(text.strip())
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high:
        raise UsageError(f"--count {text!r}: expected a number of GPUs, or MIN-MAX, for example 1-8")
    return low, high


def _price(text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal(0)
    if not (price.is_finite() and price > 0):
        raise UsageError(f"--max-price {text!r}: expected USD per GPU-hour above 0, for example 3.50")
    return price


def search_offers(
    market: Market,
    wanted: OfferFilter,
    commission: Commission,
    limit: int | None,
    has_time: Callable[[], bool] = lambda: True,
) -> ProviderOffers:
    """Return the matching offers of one provider.

    Args:
        limit: how many will be shown; None: all, and a truncated answer counts as an error.
        has_time: whether there is time for another search; if not, `error` says so and the offers so far are kept.
    """
    search = _while_there_is_time(market, has_time)
    found: list[Match] = []
    errors: dict[str, None] = {}
    answers: list[Answer] = []
    for query in _queries(wanted, commission, limit):
        try:
            answer, fitting = search_cheapest(
                search,
                query,
                commission,
                lambda got: _fitting(got, wanted, commission),
                lambda found: None if limit is None else highest_priced(found[:limit]),
            )
        except ProviderError as error:
            errors[str(error).removeprefix(f"{market.name}: ")] = None
            break
        found += fitting
        answers.append(answer)
        if (why := why_incomplete(answer)) is not None:
            errors[why] = None
        elif answer.completeness is Completeness.TRUNCATED and limit is None:
            errors["its answer was cut short"] = None
    found.sort(key=lambda match: match.price_microusd_gpu_hour)
    coverage = Coverage(
        provider=market.name,
        not_listed=frozenset(gpu for answer in answers for gpu in answer.not_listed),
        skipped=sum((Counter(answer.skipped) for answer in answers), Counter()),
    )
    return ProviderOffers(provider=market.name, matches=found, error="; ".join(errors) or None, coverage=coverage)


def _while_there_is_time(market: Market, has_time: Callable[[], bool]) -> Callable[[Query], Answer]:
    """Return the market's search, whose first query is always sent, and a later one only if there is time."""
    asked = False

    def search(query: Query) -> Answer:
        nonlocal asked
        if asked and not has_time():
            raise ProviderDown(f"{market.name}: no time left for another search; raise --timeout")
        asked = True
        return market.search(query)

    return search


def _queries(wanted: OfferFilter, commission: Commission, limit: int | None) -> list[Query]:
    ceiling = None
    if wanted.max_price_usd_gpu_hour is not None and wanted.count_max is not None:
        ceiling = float(listed_ceiling_usd(wanted.max_price_usd_gpu_hour, wanted.count_max, commission))
    return [
        Query(
            gpus=wanted.gpu_names,
            count_min=wanted.count_min,
            count_max=wanted.count_max,
            spot=spot,
            disk_gb=wanted.disk_gb,
            max_listed_usd_hour=ceiling,
            verified=wanted.verified or None,
            # the provider sorts by the price of the whole offer, gpuwatch by GPU price
            limit=None if limit is None else max(limit, PAGE_ROWS),
        )
        for spot in wanted.spots
    ]


def _fitting(answer: Answer, wanted: OfferFilter, commission: Commission) -> list[Match]:
    priced = (Match(offer, price_of(offer, wanted.disk_gb, commission)) for offer in answer.offers)
    return sorted((match for match in priced if _fits(match, wanted)), key=lambda one: one.price_microusd_gpu_hour)


def _fits(match: Match, wanted: OfferFilter) -> bool:
    offer: Offer = match.offer
    if offer.kind not in wanted.kinds:
        return False
    if wanted.gpu_names and offer.gpu not in wanted.gpu_names:
        return False
    if not wanted.has_count(offer.gpu_count):
        return False
    if wanted.max_price_usd_gpu_hour is not None:
        most = threshold_microusd(wanted.max_price_usd_gpu_hour, offer.gpu_count)
        if match.price.price_microusd_hour > most:
            return False
    if not wanted.meets_condition(offer, match.price):
        return False
    return offer.rentable and (offer.verified is True or not wanted.verified)


SORTS: Final[Mapping[str, Callable[[Match], Any]]] = {
    "gpu-price": rank,
    "price": lambda match: (match.price.price_microusd_hour, *rank(match)),
    "provider": lambda match: (match.offer.provider, *rank(match)),
    "reliability": lambda match: (-(match.offer.reliability or 0.0), *rank(match)),
}

GROUPS: Final[Mapping[str, Callable[[Offer], str]]] = {
    "gpu": lambda offer: offer.gpu,
    "provider": lambda offer: offer.provider,
    "region": lambda offer: offer.place or "unknown",
}


class OfferGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of offers with one kind of price; whole GPUs and slices never share a group."""

    name: str
    kind: OfferKind
    is_slice: bool
    offers: int  # resold stock counts once
    cheapest: FoldedOffer[Match]
    median_microusd_gpu_hour: float


def sorted_offers(found: Iterable[Match], sort: str) -> list[FoldedOffer[Match]]:
    """Return every stock once, in order; slices after all whole GPUs, because their price is not that of a GPU.

    Args:
        sort: a key of SORTS.
    """
    by = SORTS[sort]
    return fold_resold(sorted(found, key=lambda match: (is_slice(match.offer), by(match))))


def group_offers(found: Iterable[Match], group_by: str) -> list[OfferGroup]:
    """Return the cheapest offer, the number and the median GPU price of each group; cheapest group first, slices last.

    Args:
        group_by: a key of GROUPS.
    """
    name_of = GROUPS[group_by]
    groups: dict[tuple[bool, str, OfferKind], list[FoldedOffer[Match]]] = {}
    for sorted_offer in sorted_offers(found, "gpu-price"):
        offer = sorted_offer.primary.offer
        groups.setdefault((is_slice(offer), name_of(offer), offer.kind), []).append(sorted_offer)
    made = [_group(name, kind, sliced, mine) for (sliced, name, kind), mine in groups.items()]
    return sorted(made, key=lambda one: (one.is_slice, one.cheapest.primary.price_microusd_gpu_hour, one.name))


def _group(name: str, kind: OfferKind, sliced: bool, mine: Sequence[FoldedOffer[Match]]) -> OfferGroup:
    return OfferGroup(
        name=name,
        kind=kind,
        is_slice=sliced,
        offers=len(mine),
        cheapest=mine[0],
        median_microusd_gpu_hour=median(one.primary.price_microusd_gpu_hour for one in mine),
    )


def empty_text(coverages: Iterable[Coverage], gpu_names: Sequence[str], texts: Sequence[str]) -> str:
    """Return one line for an empty result of complete answers: "no offers (every provider answered)", or what is open.

    Args:
        gpu_names: canonical names of the query; empty: any.
        texts: the same as the owner wrote them.
    """
    gaps = list(_gaps(list(coverages), gpu_names, ", ".join(texts)))
    return f"no offers ({'; '.join(gaps)})" if gaps else "no offers (every provider answered)"


def _gaps(coverages: Sequence[Coverage], gpu_names: Sequence[str], shown: str) -> Iterator[str]:
    cannot = [one.provider for one in coverages if gpu_names and set(gpu_names) <= set(one.not_listed)]
    if cannot:
        yield f"{', '.join(cannot)} cannot list {shown}"
    unlisted = [name for name in gpu_names if name != NO_GPU and catalog().get(name) is None]
    if unlisted and len(unlisted) == len(gpu_names) and len(cannot) < len(coverages):
        yield f"no offer is called {shown}, which is not in gpuwatch's catalogue"
    for one in coverages:
        if rows := sum(one.skipped.values()):
            yield f"{count_text(rows, 'row')} of {one.provider} not understood"
    others = len(coverages) - len(cannot)
    if cannot and others and not any(one.skipped for one in coverages):
        yield "every other provider answered" if others > 1 else "the other provider answered"
