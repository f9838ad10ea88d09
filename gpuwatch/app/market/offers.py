"""Offers of several providers now: the search, and the JSON of an offer.

How long a stored price counts as the price now: the one rule for every command and page.

Offers available now, with their prices: from the store, from a file of price rows, or from the providers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch import providers
from gpuwatch.bootstrap import build_adapters, monotonic, open_http, open_store_read_only, pace, real_now
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.money import MICRO, REFERENCE_DISK_GB, Commission, OfferPrice, price_of, rfc3339
from gpuwatch.domain.market.offer import Offer, OfferKind, arch_of
from gpuwatch.domain.watches.decide import Match
from gpuwatch.errors import UsageError
from gpuwatch.storage.history.recording.price_sources import is_imported_source, kind_of_source, provider_of_source

if TYPE_CHECKING:
    from gpuwatch.domain.history.market_history import ListedOffer, OfferInterval
    from gpuwatch.domain.market.resold import FoldedOffer
    from gpuwatch.engine.market.browse import OfferFilter, OfferGroup, ProviderOffers
    from gpuwatch.settings import Settings
    from gpuwatch.storage.history.queries.market_snapshot import SnapshotOffer


_ANSWER_S = 3.0  # time reserved for an answer: a search started later might be cut off


def offer_json(offer: Offer, price: OfferPrice) -> dict[str, Any]:
    """JSON of one offer, for other programs: keys may be added, none is renamed."""
    price_usd_hour = price.price_microusd_hour / MICRO
    return {
        "provider": offer.provider,
        "offer_id": offer.offer_id,
        "machine_id": offer.machine_id,
        "gpu": offer.gpu,
        "gpu_family": offer.gpu_family,
        "gpu_count": offer.gpu_count,
        "gpu_memory_gib": None if offer.gpu_memory_gib is None else round(offer.gpu_memory_gib, 3),
        "spot": offer.spot,
        "region": offer.region,
        "country": offer.country,
        "listed_usd_hour": price.listed_microusd_hour / MICRO,
        "commission": price.commission_rate,
        "price_usd_hour": price_usd_hour,
        "price_usd_gpu_hour": price_usd_hour / offer.gpu_count,
        "reliability": offer.reliability,
        "verified": offer.verified,
        "observed_at": rfc3339(offer.observed_at),
        "disk_usd_gb_month": offer.disk_usd_gb_month,
        "datacenter": offer.datacenter,
        "vcpu": offer.vcpu,
        "ram_gib": None if offer.ram_gib is None else round(offer.ram_gib, 3),
        "disk_free_gb": offer.disk_free_gb,
        "download_mbps": offer.download_mbps,
        "upload_mbps": offer.upload_mbps,
        "download_usd_gb": offer.download_usd_gb,
        "upload_usd_gb": offer.upload_usd_gb,
        "cuda_max": offer.cuda_max,
        "driver": offer.driver,
        "ports": offer.ports,
        "nvlink_gbps": offer.nvlink_gbps,
        "dlperf": offer.dlperf,
        "available_until": rfc3339(offer.available_until),
        "kind": offer.kind.value,
        "cpu_arch": arch_of(offer),
        **_terms_json(offer),
    }


def match_json(match: Match) -> dict[str, Any]:
    """JSON of a watch's match: the offer, and the cost of the job if the watch has one."""
    fields = offer_json(match.offer, match.price)
    return fields if match.job_microusd is None else fields | {"job_cost_usd": match.job_microusd / MICRO}


def _terms_json(offer: Offer) -> dict[str, Any]:
    terms = offer.terms
    return {
        "seller": terms.seller,
        "instance_type": terms.instance_type,
        "gpu_fraction": terms.gpu_fraction,
        "terms": {
            "interconnect": offer.link,
            "multi_node": terms.multi_node,
            "prepaid": terms.prepaid,
            "tax_included": terms.tax_included,
            "min_billing_s": terms.min_billing_s,
            "currency": terms.currency,
            "usd_rate": terms.usd_rate,
            "usd_rate_on": None if terms.usd_rate_on is None else terms.usd_rate_on.isoformat(),
            "placement_score": terms.placement_score,
            "note": terms.note,
        },
    }


def providers_that_sell(settings: Settings, offer_filter: OfferFilter, selected_names: Sequence[str]) -> list[str]:
    """The enabled providers with prices of the wanted kinds, or the named ones. Raises UsageError."""
    from gpuwatch import providers

    provider_names = named_providers(settings, selected_names)
    names = [
        name for name in provider_names if selected_names or offer_filter.kinds & frozenset(providers.info(name).kinds)
    ]
    if not names:
        kinds = " or ".join(sorted(kind.value for kind in offer_filter.kinds))
        raise UsageError(f"no enabled provider gives {kinds} prices; see: gpuwatch providers")
    return names


def markets_now(
    settings: Settings, offer_filter: OfferFilter, names: Sequence[str], limit: int | None, within_s: float
) -> Iterator[ProviderOffers]:
    """The offers of each provider as soon as it answers; at the end, an error for each one that did not.

    Args:
        limit: per provider; None: no limit.
        within_s: total real time in seconds.
    """
    import threading

    from gpuwatch.engine.market.browse import ProviderOffers, search_offers
    from gpuwatch.engine.setup.parallel import run_in_parallel

    http, stop, waiting = open_http(settings), threading.Event(), set(names)
    until = monotonic() + within_s * pace()

    def one(name: str) -> ProviderOffers:
        configured = settings.providers[name]
        market = build_adapters(settings, http, [name], stop, is_patient=False)[name].market
        needs_s = configured.search_interval_s + _ANSWER_S * pace()
        return search_offers(market, offer_filter, configured.commission, limit, lambda: monotonic() + needs_s < until)

    try:
        for outcome in run_in_parallel(names, one, within_s):
            if not outcome.late:
                waiting.discard(outcome.name)
            found = outcome.result or ProviderOffers(provider=outcome.name, error=outcome.error)
            if not found.matches and not found.error and (why := emptied_reason(settings, found.provider)):
                found = ProviderOffers(provider=found.provider, error=why)
            yield found
    finally:
        stop.set()  # ends waits for the rate limit
        if not waiting:  # requests in progress end with the process
            http.close()


def emptied_reason(settings: Settings, provider: str) -> str | None:
    """Why "no offers" of a provider proves nothing: a daemon found that its answers became empty. None: it does."""
    from gpuwatch.bootstrap import command_holds, real_now
    from gpuwatch.engine.market.empty_answers import emptied, emptied_text

    hold = emptied(command_holds(settings), provider, real_now())
    return None if hold is None else emptied_text(hold)


def named_providers(settings: Settings, names: Sequence[str]) -> list[str]:
    """The enabled providers, or the named ones. Raises UsageError: one is not enabled."""
    for name in names:
        if name not in settings.providers:
            from gpuwatch.bootstrap.provider_access import not_enabled_error

            raise not_enabled_error(settings, name)
    return list(names) or list(settings.providers)


def all_matches(answers: Iterable[ProviderOffers]) -> list[Match]:
    """The offers of all providers."""
    return [match for answer in answers for match in answer.matches]


def offers_json(matches: Iterable[Match], sort: str, limit: int | None = None) -> list[dict[str, Any]]:
    """The offers as one list: resold stock only once, sorted by a key of `SORTS`."""
    from gpuwatch.engine.market.browse import sorted_offers

    return [_folded_json(folded) for folded in sorted_offers(matches, sort)[:limit]]


def groups_json(matches: Iterable[Match], group_by: str, limit: int | None = None) -> list[dict[str, Any]]:
    """For each group its cheapest offer, the number of offers and the median price."""
    from gpuwatch.engine.market.browse import group_offers

    return [_group_json(group, group_by) for group in group_offers(matches, group_by)[:limit]]


def _folded_json(folded: FoldedOffer[Match]) -> dict[str, Any]:
    return offer_json(folded.primary.offer, folded.primary.price) | {"also_at": folded.also}


def _group_json(group: OfferGroup, group_by: str) -> dict[str, Any]:
    cheapest = group.cheapest
    return {
        "group_by": group_by,
        "group": group.name,
        "kind": group.kind.value,
        "slices": group.is_slice,
        "offers": group.offers,
        "cheapest_usd_gpu_hour": cheapest.primary.price_microusd_gpu_hour / MICRO,
        "median_usd_gpu_hour": group.median_microusd_gpu_hour / MICRO,
        "cheapest": _folded_json(cheapest),
    }


FRESH = timedelta(hours=3)  # the time that a poll counts in the history
_POLLS_KEPT = 3  # an answer counts for this many poll intervals of its provider, as for watches


def max_price_age(settings: Settings, source: str) -> timedelta:
    """The maximum age of a poll whose prices are those of now. Price lists are polled a few times a day."""
    name, every_s = provider_of_source(source), 0.0
    if name in settings.providers:
        every_s = settings.providers[name].poll_every_s
    elif name in providers.names():
        every_s = providers.info(name).poll_every_s
    return max(FRESH, timedelta(seconds=_POLLS_KEPT * every_s))


_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


class CurrentOffers(msgspec.Struct, frozen=True, kw_only=True):
    """Offers with their prices, including commission and disk; their source and time."""

    offers: tuple[tuple[Offer, OfferPrice], ...]
    as_of: datetime | None  # the newest poll; None: no poll
    source: str
    errors: tuple[str, ...] = ()  # why some offers may be missing, one line each
    is_polled: bool = False  # just now; recorded prices do not state all facts


def is_old(as_of: datetime | None, now: datetime) -> bool:
    """Whether prices of that time may have changed since."""
    return as_of is not None and abs(now - as_of) > FRESH


def current_offers(
    settings: Settings,
    offer_filter: OfferFilter,
    provider_names: Sequence[str] = (),
    data: Path | None = None,
    poll_within_s: float | None = None,
) -> CurrentOffers:
    """The offers that pass a filter.

    Args:
        provider_names: providers; empty: all.
        data: a file of price rows, in which the newest poll counts; None: the store.
        poll_within_s: poll the providers instead, for at most this time.

    Raises:
        UsageError: the file cannot be used, or no provider can be polled.
        StoreError: the store cannot be read.
    """
    if poll_within_s is not None:
        return _polled(settings, offer_filter, provider_names, poll_within_s)
    offers, as_of = (
        _in_store(settings, offer_filter, provider_names)
        if data is None
        else _in_file(settings, offer_filter, provider_names, data)
    )
    priced = tuple(
        (offer, price_of(offer, offer_filter.disk_gb, _commission(settings, offer.provider)))
        for offer in offers
        if (not offer_filter.gpu_names or offer.gpu in offer_filter.gpu_names)
        and offer_filter.count_min <= offer.gpu_count <= (offer_filter.count_max or offer.gpu_count)
        and (offer.verified is True or not offer_filter.verified)
    )
    return CurrentOffers(offers=priced, as_of=as_of, source="the store" if data is None else data.name)


def _polled(
    settings: Settings, offer_filter: OfferFilter, provider_names: Sequence[str], within_s: float
) -> CurrentOffers:
    names = providers_that_sell(settings, offer_filter, provider_names)
    offers: list[tuple[Offer, OfferPrice]] = []
    errors: list[str] = []
    for answer in markets_now(settings, offer_filter, names, None, within_s):
        offers += [(match.offer, match.price) for match in answer.matches]
        errors += [f"{answer.provider}: {answer.error}"] if answer.error else []
    source = ", ".join(names) if len(names) <= 3 else f"{len(names)} providers"
    return CurrentOffers(offers=tuple(offers), as_of=real_now(), source=source, errors=tuple(errors), is_polled=True)


def _in_store(
    settings: Settings, offer_filter: OfferFilter, provider_names: Sequence[str]
) -> tuple[list[Offer], datetime | None]:
    """The offers of the providers whose last poll is recent compared with the newest one, and the time of that poll."""
    from gpuwatch.storage.history.queries.market_snapshot import market_at
    from gpuwatch.storage.history.queries.poll_queries import last_poll

    def is_requested(snapshot_offer: SnapshotOffer) -> bool:
        name = snapshot_offer.identity.provider
        return not is_imported_source(name) and _is_requested(
            offer_filter, provider_names, name, snapshot_offer.identity.spot, kind_of_source(name)
        )

    with open_store_read_only(settings) as store:
        requested = [offer for offer in market_at(store, real_now()).offers if is_requested(offer)]
        names = {offer.identity.provider for offer in requested}
        polled = {name: poll.at for name in names if (poll := last_poll(store, name)) is not None}
    newest = max(polled.values(), default=_BEGINNING)
    fresh = {name: at for name, at in polled.items() if newest - at <= max_price_age(settings, name)}
    offers = [
        _offer(snapshot_offer, snapshot_offer, kind_of_source(name), None, fresh[name])
        for snapshot_offer in requested
        if (name := snapshot_offer.identity.provider) in fresh
    ]
    return offers, max(polled.values(), default=None)


def _in_file(
    settings: Settings, offer_filter: OfferFilter, provider_names: Sequence[str], data: Path
) -> tuple[list[Offer], datetime | None]:
    """The offers in the newest poll, and its time."""
    from gpuwatch.app.history.past_prices import load_prices
    from gpuwatch.domain.history.market_history import MarketFilter

    history = load_prices(settings, MarketFilter(), _BEGINNING, real_now(), data)
    ends_s = history.ends_s or 0
    offers = []
    for interval in history.intervals:
        facts = history.listings[interval.listing]
        is_open = interval.delisted_s is None and ends_s - interval.seen_s <= FRESH.total_seconds()
        if is_open and _is_requested(
            offer_filter, provider_names, facts.identity.provider, facts.identity.spot, facts.kind
        ):
            seen_at = datetime.fromtimestamp(interval.seen_s, UTC)
            offers.append(_offer(facts, interval, facts.kind, facts.gpu_memory_gib, seen_at))
    return offers, datetime.fromtimestamp(ends_s, UTC) if offers else None


def _is_requested(
    offer_filter: OfferFilter, provider_names: Sequence[str], source: str, spot: bool, kind: OfferKind
) -> bool:
    shown_kind = kind if kind is OfferKind.LISTED else OfferKind.LIVE
    return (
        spot in offer_filter.spots
        and shown_kind in offer_filter.kinds
        and (not provider_names or provider_of_source(source) in provider_names)
    )


def _offer(
    facts: SnapshotOffer | ListedOffer,
    price: SnapshotOffer | OfferInterval,
    kind: OfferKind,
    memory_gib: float | None,
    seen_at: datetime,
) -> Offer:
    identity, disk, region = facts.identity, price.disk_microusd_gb_month, facts.region
    specs = gpu_specs().get(identity.gpu)
    if region and facts.country:  # some files state the country twice
        region = region.removesuffix(f", {facts.country}")
    return Offer(
        provider=provider_of_source(identity.provider),
        offer_id=facts.offer_id,
        machine_id=identity.machine_id,
        gpu=identity.gpu,
        gpu_family=identity.gpu if specs is None else specs.family,
        gpu_wire=identity.gpu,
        gpu_known=specs is not None,
        gpu_count=identity.gpu_count,
        gpu_memory_gib=memory_gib or (None if specs is None else specs.memory_gib),
        spot=identity.spot,
        quoted_usd_hour=price.listed_microusd_hour(REFERENCE_DISK_GB) / MICRO,
        quoted_disk_gb=REFERENCE_DISK_GB,
        disk_usd_gb_month=None if disk is None else disk / MICRO,
        observed_at=seen_at,
        region=region,
        country=facts.country,
        reliability=facts.reliability,
        verification=facts.verification,
        kind=kind,
    )


def _commission(settings: Settings, name: str) -> Commission:
    """The commission as configured; for a provider that is not enabled, its default."""
    if (options := settings.providers.get(name)) is not None:
        return options.commission
    if name not in providers.names():
        return Commission()
    info = providers.info(name)
    billing = info.billing
    return msgspec.structs.replace(info.commission, min_billing_s=billing.minimum_s, billing_step_s=billing.step_s)
