"""Which offers a watch accepts, at which price, and which clauses reject the others. Pure.

Nothing is taken on trust: a provider's own filter only reduces the answer. A missing value does not satisfy a clause
that requires it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import Commission, OfferPrice, above_text, price_of, threshold_microusd, usd
from gpuwatch.domain.market.offer import Identity, Offer, OfferKind, arch_of, is_slice, slice_text
from gpuwatch.domain.market.places import country_of, wanted_place
from gpuwatch.domain.watches.computed_limits import (
    RARE_CLAUSES,
    Clause,
    Failure,
    job_cost,
    job_microusd,
    most_microusd,
    traffic_microusd_hour,
    traffic_note,
)
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import Action, CpuArch, SpotPolicy, Watch

NO_COMMISSION = Commission()
_SETTINGS_OF: dict[Clause, tuple[str, ...]] = {}  # a clause without an effect unless one of these fields is set
_MEMORY_SLACK = 0.99  # a driver reserves up to half a percent: 32607 MiB are sold as 32 GB


def price_for(watch: Watch, offer: Offer, commissions: Mapping[str, Commission]) -> OfferPrice:
    """Return the price of an offer for this watch: with its disk, the provider's commission and its traffic."""
    price = price_of(offer, watch.disk_gb, commissions.get(offer.provider, NO_COMMISSION))
    is_moving = watch.download_gb or watch.upload_gb
    return price.with_traffic(traffic_microusd_hour(watch, offer)) if is_moving else price


def clauses_of(watch: Watch) -> tuple[Clause, ...]:
    """Return the clauses that may reject an offer, in the order of the settings: without those that are not set."""
    return tuple([clause for clause in _ALL_CLAUSES if _is_set(watch, clause)])


def _is_set(watch: Watch, clause: Clause) -> bool:
    names = _SETTINGS_OF.get(clause)
    if names is None:
        return True
    values = [getattr(watch, name) for name in names]
    return any(value is not None and value is not False and value != () for value in values)  # 0 is a value


def failures(
    watch: Watch, offer: Offer, price: OfferPrice, now: datetime, clauses: tuple[Clause, ...] | None = None
) -> tuple[Failure, ...]:
    """Return all clauses that reject this offer, in the order of the settings; empty: it matches.

    Args:
        clauses: `clauses_of(watch)`, for many offers of one watch.
    """
    clauses = _ALL_CLAUSES if clauses is None else clauses
    found = tuple([failure for clause in clauses if (failure := clause(watch, offer, price, now)) is not None])
    if watch.max_job_cost_usd is None or not {"job", "max_job_cost"} & {failure.clause for failure in found}:
        return found
    return tuple(failure for failure in found if failure.clause != "max_price")  # the job's cost explains more


def accepts(watch: Watch, offer: Offer, price: OfferPrice, now: datetime) -> bool:
    """Return whether all clauses accept the offer."""
    for clause in _CLAUSES:  # noqa: SIM110 - a generator takes half as long again
        if clause(watch, offer, price, now) is not None:
            return False
    return True


def accepts_facts(watch: Watch, offer: Offer, price: OfferPrice, now: datetime) -> bool:
    """Return whether the clauses about facts that the history records accept the offer, whatever its price."""
    return all(clause(watch, offer, price, now) is None for clause in _FACT_CLAUSES)


def match_of(watch: Watch, offer: Offer, price: OfferPrice) -> Match:
    """Return an offer with its price and the cost of the watch's job there."""
    return Match(offer, price, job_microusd(watch, offer, price))


def matches(
    watch: Watch, offers: Iterable[Offer], commissions: Mapping[str, Commission], now: datetime
) -> tuple[Match, ...]:
    """Return the offers that a watch accepts, cheapest (job or GPU price) first, then by reliability and identity."""
    names = frozenset(watch.gpu_names)
    found = []
    for offer in offers:
        if offer.gpu in names and offer.rentable and watch.gpu_count_min <= offer.gpu_count <= watch.gpu_count_max:
            price = price_for(watch, offer, commissions)
            if _is_affordable(watch, offer, price) and accepts(watch, offer, price, now):
                found.append(match_of(watch, offer, price))
    return tuple(sorted(found, key=rank))


def _is_affordable(watch: Watch, offer: Offer, price: OfferPrice) -> bool:
    """Compared first: `accepts` would state by how much the many dearer offers exceed the limit."""
    return price.price_microusd_hour <= threshold_microusd(watch.max_price_usd_gpu_hour, offer.gpu_count)


def without_country(
    watch: Watch, offers: Iterable[Offer], commissions: Mapping[str, Commission], now: datetime
) -> list[Offer]:
    """Return the offers that only `regions` rejects and that state no country: they may be in the right one."""
    if not watch.regions:
        return []
    anywhere = msgspec.structs.replace(watch, regions=())
    placeless = (offer for offer in offers if not country_of(offer.region, offer.country))
    found = matches(anywhere, placeless, commissions, now)
    return [match.offer for match in found if _regions(watch, match.offer, match.price, now) is not None]


def is_near(watch: Watch, offers: Iterable[Offer], commissions: Mapping[str, Commission], now: datetime) -> bool:
    """Return whether an otherwise matching offer is at or under threshold × rearm; with `new_low`, at the lowest."""
    by, job, past = Decimal(repr(watch.rearm)), watch.max_job_cost_usd, watch.past
    if past is not None:  # the lowest price, which was reported, still stands
        past = msgspec.structs.replace(past, or_equal=True)
    wider = msgspec.structs.replace(
        watch,
        max_price_usd_gpu_hour=watch.max_price_usd_gpu_hour * by,
        max_job_cost_usd=None if job is None else job * by,
        past=past,
    )
    priced = ((offer, price_for(wider, offer, commissions)) for offer in offers if offer.gpu in wider.gpu_names)
    return any(_is_affordable(wider, offer, price) and accepts(wider, offer, price, now) for offer, price in priced)


def rank(match: Match) -> tuple[float, float, str, str, str, int, bool, str]:
    """The order in which matches are rented and shown."""
    identity: Identity = match.offer.identity
    return (
        match.figure,
        -(match.offer.reliability or 0.0),
        identity.provider,
        identity.machine_id,
        identity.gpu,
        identity.gpu_count,
        identity.spot,
        match.offer.offer_id,
    )


def _provider(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    if watch.providers is None or offer.provider in watch.providers:
        return None
    return Failure("providers", f"providers: {offer.provider} is not one of {', '.join(watch.providers)}")


def _gpu(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    if offer.gpu in watch.gpu_names:
        if not is_slice(offer):
            return None
        return Failure("gpu", f"gpu: it is a slice of {offer.gpu} ({slice_text(offer.terms.gpu_fraction)})")
    return Failure("gpu", f"gpu: {offer.gpu} is not {' or '.join(watch.gpu)}")


def _kind(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    """Kinds of price are never mixed: only live offers can be rented, and past prices are not offers."""
    if offer.kind is OfferKind.LIVE:
        return None
    if offer.kind is OfferKind.HISTORY:
        return Failure("kind", "kind: it is a price of the past")
    if watch.action is not Action.ALERT:
        return Failure(
            "kind", f'kind: it is a list price, and action = "{watch.action.value}" accepts live offers only'
        )
    return None if watch.listed else Failure("kind", "kind: it is a list price, and listed = false")


def _prepaid(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    """A charge for days or months in advance does not fit an hourly budget."""
    if not offer.terms.prepaid or watch.action is Action.ALERT:
        return None
    return Failure(
        "prepaid", f'prepaid: it is charged for a whole term, and action = "{watch.action.value}" does not accept that'
    )


def _cpu_arch(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    """An x86 image does not run on Arm, so a watch that rents accepts Arm only if its owner stated it."""
    wanted = watch.cpu_arch
    if wanted is CpuArch.ANY or (wanted is None and watch.action is Action.ALERT):
        return None
    arch = arch_of(offer)
    if wanted is None:
        text = 'cpu_arch: it is arm64, which requires cpu_arch = "arm64" or "any"'
        return Failure("cpu_arch", text) if arch == CpuArch.ARM64 else None
    return None if arch == wanted else Failure("cpu_arch", f"cpu_arch: {arch or 'unknown'} is not {wanted.value}")


def _rentable(_watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    return None if offer.rentable else Failure("rentable", "rentable: it cannot be rented now")


def _count(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    low, high = watch.gpu_count_min, watch.gpu_count_max
    if low <= offer.gpu_count <= high:
        return None
    text = f"{offer.gpu_count} is not {low}" if low == high else f"{offer.gpu_count} is not within {low} to {high}"
    off = (low - offer.gpu_count) / low if offer.gpu_count < low else (offer.gpu_count - high) / high
    return Failure("gpu_count", f"gpu_count: {text}", off)


def _price(watch: Watch, offer: Offer, price: OfferPrice, _now: datetime) -> Failure | None:
    if _is_affordable(watch, offer, price):
        return None
    is_, wanted = price.gpu_price_usd_hour(offer.gpu_count), watch.max_price_usd_gpu_hour
    text = f"max_price: {above_text(is_, wanted)}{traffic_note(price, offer.gpu_count)}"
    return Failure("max_price", text, float(is_ / wanted) - 1)


def _job(watch: Watch, offer: Offer, price: OfferPrice, _now: datetime) -> Failure | None:
    found = None if watch.max_job_cost_usd is None else job_cost(watch, offer, price)
    if found is None:
        return None
    if isinstance(found, str):
        return Failure("job", f"job: {found}")
    most = most_microusd(watch)
    if found.microusd <= most:
        return None
    return Failure(
        "max_job_cost", f"max_job_cost: {above_text(usd(found.microusd), usd(most))}", found.microusd / most - 1
    )


_BOTH = frozenset({SpotPolicy.ANY, SpotPolicy.FIRST})  # when to take which, `decide` knows


def _spot(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    if watch.spot in _BOTH or offer.spot is (watch.spot is SpotPolicy.ONLY):
        return None
    return Failure("spot", "spot: it is interruptible" if offer.spot else "spot: it is not a spot offer")


def _memory(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    """Memory as sold: `min_vram_gib = 80` accepts an H100 that reports 79.6 GiB, and 24 an A10G with 22.4.

    An owner who writes 80 does not want to reject all 80 GB cards because of the memory that their driver reserves.
    """
    least, has = watch.min_vram_gib, offer.gpu_memory_gib
    if least is None:
        return None
    if has is not None and catalog().sold_memory_gib(offer.gpu, has) >= least * _MEMORY_SLACK:
        return None
    return _too_little("min_vram_gib", has, least)


def _verified(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    if not watch.verified or offer.verified:
        return None
    is_ = "unknown" if offer.verification is None else offer.verification.value
    return Failure("verified", f"verified: the host is {is_}")


def wanted_places(watch: Watch, offer: Offer) -> tuple[str, ...]:
    """Return the places of an offer without one of its own that `regions` accepts: an order must name them."""
    if not watch.regions:
        return ()
    return tuple(place.region for place in offer.terms.places if _is_wanted(watch, place.region, place.country))


def _is_wanted(watch: Watch, region: str | None, country: str | None) -> bool:
    return any(wanted_place(text).holds(region, country) for text in watch.regions)


def _regions(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    if not watch.regions or _is_wanted(watch, offer.region, offer.country) or wanted_places(watch, offer):
        return None
    where = offer.region or offer.country or "unknown"
    return Failure("regions", f"regions: {where} is not {', '.join(watch.regions)}")


def _driver(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    if watch.min_driver is None or _version(offer.driver) >= _version(watch.min_driver):
        return None
    return Failure("min_driver", f"min_driver: {offer.driver or 'unknown'} < {watch.min_driver}")


def _own_disk(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    """The requested disk must fit; if the provider does not state the free space, the host does not limit it."""
    if watch.disk_gb is None or offer.disk_free_gb is None or offer.disk_free_gb >= watch.disk_gb:
        return None
    return _too_little("disk_gb", offer.disk_free_gb, watch.disk_gb)


def _available(watch: Watch, offer: Offer, _price: OfferPrice, now: datetime) -> Failure | None:
    if watch.available_for_s is None:
        return None
    if offer.available_until is None:
        return Failure("available_for", "available_for: unknown")
    if offer.available_until >= now + timedelta(seconds=watch.available_for_s):
        return None
    left_s = max(0.0, (offer.available_until - now).total_seconds())
    text = f"available_for: {left_s / 3600:.1f} h < {watch.available_for_s / 3600:.1f} h"
    return Failure("available_for", text, 1 - left_s / watch.available_for_s)


def _at_least(clause: str, offer_field: str) -> Clause:
    def clause_holds(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
        least: float | None = getattr(watch, clause)
        if least is None:
            return None
        has: float | None = getattr(offer, offer_field)
        if has is not None and has >= least:
            return None
        return _too_little(clause, has, least)

    _SETTINGS_OF[clause_holds] = (clause,)
    return clause_holds


def _boolean_clause(clause: str, holds: Callable[[Offer], bool | None]) -> Clause:
    def clause_holds(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
        if not getattr(watch, clause) or holds(offer):
            return None
        return Failure(clause, f"{clause}: {'no' if holds(offer) is False else 'unknown'}")

    _SETTINGS_OF[clause_holds] = (clause,)
    return clause_holds


def _too_little(clause: str, has: float | None, least: float) -> Failure:
    if has is None:
        return Failure(clause, f"{clause}: unknown, {least:g} wanted")
    shown, wanted = f"{has:.4g}", f"{least:g}"
    if shown == wanted:
        shown = f"{has!r}"
    return Failure(clause, f"{clause}: {shown} < {wanted}", 1 - has / least)


def _version(text: str | None) -> tuple[int, ...]:
    parts = (text or "").split(".")
    return tuple(int(part) for part in parts) if all(p.isascii() and p.isdigit() for p in parts) else ()


def _rare(watch: Watch, offer: Offer, price: OfferPrice, now: datetime) -> Failure | None:
    """All rare clauses behind one call: the first that rejects the offer."""
    if (
        watch.max_usd_tflop_hour is None
        and watch.max_usd_gib_hour is None
        and watch.when is None
        and not watch.any_of
        and watch.past is None
        and watch.min_reputation is None
    ):
        return None
    return next(filter(None, (clause(watch, offer, price, now) for clause in RARE_CLAUSES)), None)


_CLAUSES: tuple[Clause, ...] = (
    _provider,
    _gpu,
    _kind,
    _prepaid,
    _rentable,
    _count,
    _price,
    _job,
    _spot,
    _cpu_arch,
    _memory,
    _at_least("min_reliability", "reliability"),
    _verified,
    _boolean_clause("datacenter", lambda offer: offer.datacenter),
    _regions,
    _at_least("min_cuda", "cuda_max"),
    _driver,
    _at_least("min_download_mbps", "download_mbps"),
    _at_least("min_upload_mbps", "upload_mbps"),
    _at_least("min_disk_gb", "disk_free_gb"),
    _own_disk,
    _at_least("min_vcpu", "vcpu"),
    _at_least("min_ram_gib", "ram_gib"),
    _at_least("min_ports", "ports"),
    _at_least("min_dlperf", "dlperf"),
    _boolean_clause("nvlink", lambda offer: offer.nvlink),
    _boolean_clause("static_ip", lambda offer: offer.static_ip),
    _available,
    _rare,
)
_ALL_CLAUSES: tuple[Clause, ...] = (*_CLAUSES[:-1], *RARE_CLAUSES)
_SETTINGS_OF |= RARE_CLAUSES
_SETTINGS_OF |= {
    _job: ("max_job_cost_usd",),
    _memory: ("min_vram_gib",),
    _verified: ("verified",),
    _regions: ("regions",),
    _driver: ("min_driver",),
    _own_disk: ("disk_gb",),
    _available: ("available_for_s",),
}
_FACT_CLAUSES: tuple[Clause, ...] = (_provider, _gpu, _kind, _count, _spot, _memory, _verified, _regions)
