"""Offers of several providers now: the search, and the JSON of an offer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpuwatch.bootstrap import build_adapters, monotonic, open_http, pace, real_now
from gpuwatch.domain.market.money import MICRO, OfferPrice, rfc3339
from gpuwatch.domain.market.offer import Offer, arch_of
from gpuwatch.domain.watches.decide import Match
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.market.resold import FoldedOffer
    from gpuwatch.engine.market.browse import OfferFilter, OfferGroup, ProviderOffers
    from gpuwatch.settings import Settings


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
    from gpuwatch.bootstrap import command_holds
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
