"""Offers of several providers now: the search, and an offer as other programs see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from gpuwatch.app.market.outbid_risk import OutbidRiskView, known_risks, risk_view
from gpuwatch.bootstrap import build_adapters, monotonic, open_http, real_now
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.market.links import network_gbps
from gpuwatch.domain.market.money import MICRO, OfferPrice
from gpuwatch.domain.market.offer import Offer, OfferKind, arch_of, priced_units
from gpuwatch.domain.market.traffic import Traffic
from gpuwatch.domain.watches.decide import Match
from gpuwatch.engine.setup.failpoint import pace
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.market.outbid_risk import OutbidRisk
    from gpuwatch.domain.market.resold import FoldedOffer
    from gpuwatch.engine.market.browse import OfferFilter, ProviderOffers
    from gpuwatch.settings import Settings


_ANSWER_S = 3.0  # time reserved for an answer: a search started later might be cut off


class OfferTermsView(JsonView, frozen=True, kw_only=True):
    """Rare properties of an offer; null: not stated."""

    interconnect: str | None  # between its GPUs
    network_gbps: Annotated[float | None, Meta(description="Gbit/s of each machine to the others.")]
    multi_node: bool | None
    prepaid: bool | None
    tax_included: bool | None
    min_billing_s: float | None
    currency: str
    usd_rate: float | None
    usd_rate_on: date | None
    placement_score: int | None
    note: str | None


class OfferView(JsonView, frozen=True, kw_only=True):
    """One offer; null: the provider does not state it."""

    provider: str
    offer_id: str
    machine_id: str | None
    gpu: str
    gpu_family: str
    gpu_count: int
    gpu_memory_gib: Annotated[float | None, Meta(description="Of one GPU.")]
    spot: bool
    region: str | None
    country: Annotated[str | None, Meta(description="ISO 3166 alpha-2.")]
    listed_usd_hour: float
    commission: Annotated[float, Meta(description="The fraction added to the listed price.")]
    price_usd_hour: Annotated[float, Meta(description="Commission included.")]
    price_usd_gpu_hour: Annotated[float, Meta(description="Commission included.")]
    reliability: Annotated[float | None, Meta(description="From 0 to 1.")]
    verified: bool | None
    observed_at: Moment
    disk_usd_gb_month: float | None
    datacenter: bool | None
    vcpu: float | None
    ram_gib: float | None
    disk_free_gb: float | None
    disk_mb_s: float | None
    download_mbps: float | None
    upload_mbps: float | None
    download_usd_gb: float | None
    upload_usd_gb: float | None
    cuda_max: float | None
    driver: str | None
    ports: int | None
    nvlink_gbps: float | None
    dlperf: float | None
    available_until: Moment | None
    kind: OfferKind
    cpu_arch: str | None
    seller: Annotated[str | None, Meta(description="The owner of the hardware, if it is resold.")]
    instance_type: str | None
    gpu_fraction: Annotated[float, Meta(description="Below 1: a slice of a GPU.")]
    terms: OfferTermsView
    also_at: Annotated[tuple[str, ...] | UnsetType, Meta(description="Other providers with this stock.")] = UNSET
    job_cost_usd: Annotated[float | UnsetType, Meta(description="Of the job of the watch.")] = UNSET
    traffic_usd_hour: Annotated[
        float | UnsetType | None,
        Meta(description="Part of the price: the watch's traffic at known rates. null: no rate is known."),
    ] = UNSET
    outbid_risk: Annotated[
        OutbidRiskView | UnsetType,
        Meta(description="Of a spot offer whose machine's bids are known for a day or more."),
    ] = UNSET
    traffic_unknown: Annotated[
        tuple[str, ...] | UnsetType, Meta(description='Whose rate is unknown: "download", "upload".')
    ] = UNSET


class OfferGroupView(JsonView, frozen=True, kw_only=True):
    """A group of offers, by its cheapest one."""

    group_by: str
    group: str
    kind: OfferKind
    slices: bool
    offers: int
    cheapest_usd_gpu_hour: float
    median_usd_gpu_hour: float
    cheapest: OfferView


def offer_view(offer: Offer, price: OfferPrice, **more: Any) -> OfferView:
    """One offer as other programs see it. `more`: keys that not every offer has."""
    return OfferView.of(
        offer,
        price,
        offer.terms,
        gpu_memory_gib=None if offer.gpu_memory_gib is None else round(offer.gpu_memory_gib, 3),
        ram_gib=None if offer.ram_gib is None else round(offer.ram_gib, 3),
        commission=price.commission_rate,
        price_usd_gpu_hour=price.price_microusd_hour / MICRO / priced_units(offer.gpu_count),
        cpu_arch=arch_of(offer),
        terms=OfferTermsView.of(offer.terms, interconnect=offer.link, network_gbps=network_gbps(offer)),
        **more,
    )


def match_view(match: Match, traffic: Traffic | None = None) -> OfferView:
    """A watch's match: the offer, and the cost of the job if the watch has one.

    Args:
        traffic: that of the watch, if its prices contain it.
    """
    more: dict[str, Any] = {} if match.job_microusd is None else {"job_cost_usd": match.job_microusd / MICRO}
    if traffic is not None:
        unknown, hourly = traffic.unpriced(match.offer), match.price.traffic_microusd_hour / MICRO
        more |= {"traffic_usd_hour": None if unknown and not hourly else hourly, "traffic_unknown": unknown}
    return offer_view(match.offer, match.price, **more)


def providers_that_sell(settings: Settings, offer_filter: OfferFilter, selected_names: Sequence[str]) -> list[str]:
    """The enabled providers with prices of the wanted kinds, or the named ones. Raises UsageError."""
    from gpuwatch import providers

    provider_names = named_providers(settings, selected_names)
    names = [
        name for name in provider_names if selected_names or offer_filter.kinds & frozenset(providers.info(name).kinds)
    ]
    if offer_filter.wants_no_gpu:
        names = [name for name in names if providers.info(name).sells_cpu_machines]
        if not names:
            raise UsageError("gpuwatch reads no machines without GPUs there; see: docs/cpu-machines.md")
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

    hold = emptied(command_holds(settings).load(provider), real_now())
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


def offer_views(settings: Settings, matches: Iterable[Match], sort: str, limit: int | None = None) -> list[OfferView]:
    """The offers as one list: resold stock only once, sorted by a key of `SORTS`; with the risk of being outbid."""
    from gpuwatch.engine.market.browse import sorted_offers

    return listed_views(settings, sorted_offers(matches, sort)[:limit])


def listed_views(settings: Settings, shown: Sequence[FoldedOffer[Match]]) -> list[OfferView]:
    """Offers as other programs see them, with the risk of being outbid where it is known, by one query for all."""
    risks = known_risks(settings, [one.primary for one in shown], real_now())
    return [folded_view(one, risks.get(one.primary.offer.identity)) for one in shown]


def group_views(matches: Iterable[Match], group_by: str, limit: int | None = None) -> list[OfferGroupView]:
    """For each group its cheapest offer, the number of offers and the median price."""
    from gpuwatch.engine.market.browse import group_offers

    return [
        OfferGroupView.of(
            group,
            group_by=group_by,
            group=group.name,
            slices=group.is_slice,
            cheapest_usd_gpu_hour=group.cheapest.primary.price_microusd_gpu_hour / MICRO,
            cheapest=folded_view(group.cheapest),
        )
        for group in group_offers(matches, group_by)[:limit]
    ]


def folded_view(folded: FoldedOffer[Match], risk: OutbidRisk | None = None) -> OfferView:
    """One offer, with the other providers that sell the same stock."""
    more = {} if risk is None else {"outbid_risk": risk_view(risk)}
    return offer_view(folded.primary.offer, folded.primary.price, also_at=folded.also, **more)
