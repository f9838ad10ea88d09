"""Current offers for the cost of a job: from the store, from a file of price rows, or from the providers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch import providers
from gpuwatch.app.offers import markets_now, offer_json, providers_that_sell
from gpuwatch.app.past_prices import load_prices
from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.domain.analysis.market_history import MarketFilter
from gpuwatch.domain.market.gpu_specs import gpu_specs
from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.pricing import MICRO, Commission, OfferPrice, price_of
from gpuwatch.domain.planning.figures import FigureRange, exactly
from gpuwatch.domain.planning.job import METHOD_TEXT, JobCost, load_usd
from gpuwatch.domain.watches.durations import parse_duration
from gpuwatch.storage.answer_changes import REFERENCE_DISK_GB
from gpuwatch.storage.price_sources import is_imported_source, kind_of_source, provider_of_source

if TYPE_CHECKING:
    from gpuwatch.domain.analysis.market_history import ListedOffer, OfferInterval
    from gpuwatch.domain.planning.job_comparison import ComparedHardware, JobRanking
    from gpuwatch.domain.planning.job_hours import JobSpec
    from gpuwatch.engine.browse import OfferFilter
    from gpuwatch.settings import Settings
    from gpuwatch.storage.market_snapshot import SnapshotOffer

FRESH = timedelta(hours=3)  # offers older than the newest poll by this are gone; older prices are marked as old


class CurrentOffers(msgspec.Struct, frozen=True, kw_only=True):
    """Offers, their source and their time."""

    offers: tuple[tuple[Offer, OfferPrice], ...]
    as_of: datetime | None  # the newest poll; None: none
    source: str
    troubles: tuple[str, ...] = ()  # why some may be missing, one line each


def offers_now(
    settings: Settings, wanted: OfferFilter, only: Sequence[str], data: Path | None, poll_within_s: float | None
) -> CurrentOffers:
    """Offers that pass a filter, with their prices, commission and disk included.

    Args:
        data: a file of price rows, of which the newest poll counts; None: the store.
        poll_within_s: poll the providers instead, for at most this time.

    Raises:
        UsageError: the file cannot be used, or no provider can be polled.
        StoreError: the store cannot be read.
    """
    if poll_within_s is not None:
        return _polled(settings, wanted, only, poll_within_s)
    found = _in_store(settings) if data is None else _in_file(settings, data)
    offers = [offer for offer in found.offers if _fits(offer, wanted, only)]
    priced = tuple((offer, _price(settings, offer, wanted.disk_gb)) for offer in offers)
    return CurrentOffers(offers=priced, as_of=found.as_of, source=found.source)


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    offers: list[Offer]
    as_of: datetime | None
    source: str


def _polled(settings: Settings, wanted: OfferFilter, only: Sequence[str], within_s: float) -> CurrentOffers:

    names = providers_that_sell(settings, wanted, only)
    found: list[tuple[Offer, OfferPrice]] = []
    troubles: list[str] = []
    for one in markets_now(settings, wanted, names, None, within_s):
        found += [(match.offer, match.price) for match in one.matches]
        troubles += [f"{one.provider}: {one.error}"] if one.error else []
    source = ", ".join(names) if len(names) <= 3 else f"{len(names)} providers"
    return CurrentOffers(offers=tuple(found), as_of=real_now(), source=source, troubles=tuple(troubles))


def _in_store(settings: Settings) -> _Found:
    from gpuwatch.storage.market_snapshot import market_at
    from gpuwatch.storage.poll_queries import last_poll

    now = real_now()
    with open_store_read_only(settings) as store:
        found = [one for one in market_at(store, now).offers if not is_imported_source(one.identity.provider)]
        names = {one.identity.provider for one in found}
        looked = {name: poll.at for name in names if (poll := last_poll(store, name)) is not None}
    newest = max(looked.values(), default=None)
    fresh = [one for one in found if newest is not None and newest - looked.get(one.identity.provider, newest) <= FRESH]
    offers = [_from_store(one, looked.get(one.identity.provider, now)) for one in fresh]
    return _Found(offers=offers, as_of=newest, source="the store")


def _from_store(one: SnapshotOffer, seen_at: datetime) -> Offer:

    who, disk = one.identity, one.disk_microusd_gb_month
    return _offer(
        provider=provider_of_source(who.provider),
        offer_id=one.offer_id,
        machine_id=who.machine_id,
        gpu=who.gpu,
        gpu_count=who.gpu_count,
        spot=who.spot,
        quoted_usd_hour=one.listed_microusd_hour() / MICRO,
        quoted_disk_gb=REFERENCE_DISK_GB,
        disk_usd_gb_month=None if disk is None else disk / MICRO,
        observed_at=seen_at,
        region=one.region,
        country=one.country,
        reliability=one.reliability,
        verification=one.verification,
        kind=kind_of_source(who.provider),
    )


def _in_file(settings: Settings, data: Path) -> _Found:

    market_history = load_prices(settings, MarketFilter(), datetime(2000, 1, 1, tzinfo=UTC), real_now(), data)
    ends_s = market_history.ends_s or 0
    offers = []
    for interval in market_history.intervals:
        if interval.gone_s is None and ends_s - interval.seen_s <= FRESH.total_seconds():
            offers.append(_from_history(market_history.listings[interval.listing], interval))
    as_of = None if market_history.ends_s is None else datetime.fromtimestamp(ends_s, UTC)
    return _Found(offers=offers, as_of=as_of, source=data.name)


def _from_history(listing: ListedOffer, interval: OfferInterval) -> Offer:

    who, disk = listing.identity, interval.disk_microusd_gb_month
    return _offer(
        provider=provider_of_source(who.provider),
        offer_id=listing.offer_id,
        machine_id=who.machine_id,
        gpu=who.gpu,
        gpu_count=who.gpu_count,
        spot=who.spot,
        gpu_memory_gib=listing.gpu_memory_gib,
        quoted_usd_hour=interval.listed_microusd_hour(REFERENCE_DISK_GB) / MICRO,
        quoted_disk_gb=REFERENCE_DISK_GB,
        disk_usd_gb_month=None if disk is None else disk / MICRO,
        observed_at=datetime.fromtimestamp(interval.seen_s, UTC),
        region=listing.region,
        country=listing.country,
        reliability=listing.reliability,
        verification=listing.verification,
        kind=listing.kind,
    )


def _offer(**known: Any) -> Offer:
    specs = gpu_specs().get(known["gpu"])
    memory = known.pop("gpu_memory_gib", None) or (None if specs is None else specs.memory_gib)
    if known["region"] and known["country"]:  # some files say the country twice
        known["region"] = known["region"].removesuffix(f", {known['country']}")
    return Offer(
        gpu_family=known["gpu"] if specs is None else specs.family,
        gpu_wire=known["gpu"],
        gpu_known=specs is not None,
        gpu_memory_gib=memory,
        **known,
    )


def _fits(offer: Offer, wanted: OfferFilter, only: Sequence[str]) -> bool:
    return (
        (not wanted.gpu_names or offer.gpu in wanted.gpu_names)
        and wanted.count_min <= offer.gpu_count <= (wanted.count_max or offer.gpu_count)
        and offer.spot in wanted.spots
        and (offer.kind if offer.kind is OfferKind.LISTED else OfferKind.LIVE) in wanted.kinds
        and (offer.verified is True or not wanted.verified)
        and (not only or offer.provider in only)
    )


def _price(settings: Settings, offer: Offer, disk_gb: float | None) -> OfferPrice:
    return price_of(offer, disk_gb, _commission(settings, offer.provider))


def _commission(settings: Settings, name: str) -> Commission:
    """As configured; for a provider that is not enabled, its default."""

    if (one := settings.providers.get(name)) is not None:
        return one.commission
    if name not in providers.names():
        return Commission()
    info = providers.info(name)
    billing = info.billing
    return msgspec.structs.replace(info.commission, min_billing_s=billing.minimum_s, billing_step_s=billing.step_s)


def load_range(one: ComparedHardware, spec: JobSpec, load_said: str) -> FigureRange:

    low, dash, high = load_said.partition("-")
    said = FigureRange(parse_duration(low), parse_duration(high)) if dash else exactly(parse_duration(low))
    load_s = spec.load_s if spec.load_s.high else said
    return load_usd(1, one.priced_gpus.microusd_hour / MICRO, load_s)


def job_candidates_json(
    found: Sequence[ComparedHardware], spec: JobSpec, *, credit_usd: float, seed: bool, load_said: str | None
) -> dict[str, Any]:
    """JSON of `gpuwatch plan job` for named hardware."""
    return {
        # word-check: allow - a value of the JSON
        "method": "price × hours, as the sources reckon" if seed else METHOD_TEXT,
        "seed": seed,
        "candidates": [_compared_json(one, found[0], spec, credit_usd, load_said) for one in found],
    }


def _compared_json(
    one: ComparedHardware, first: ComparedHardware, spec: JobSpec, credit_usd: float, load_said: str | None
) -> dict[str, Any]:
    load = None if load_said is None else load_range(one, spec, load_said)
    return {
        "cards": one.candidate.on.text,
        "gpu": one.priced_gpus.gpu,
        "gpu_count": one.priced_gpus.count,
        "price_usd_hour": one.priced_gpus.microusd_hour / MICRO,
        "difference_usd": (one.cost.microusd - first.cost.microusd) / MICRO,
        "break_even_speedup": round(one.break_even, 6),
        "speedup": list(one.speed),
        "load_usd": None if load is None else list(load),
        "after_credit_usd": max(0.0, one.cost.microusd / MICRO - credit_usd),
        **cost_json(one.cost),
    }


def cost_json(cost: JobCost) -> dict[str, Any]:
    """What a job costs, at worst by parts; more keys may follow."""
    high = cost.high
    return {
        "job_cost_usd": cost.microusd / MICRO,
        "job_cost_low_usd": cost.low.microusd / MICRO,
        "hours": high.hours,
        "hours_low": cost.low.hours,
        "hours_from": cost.how,
        "interruptions": high.interruptions,
        "work_usd": high.usd_for(high.work_h),
        "ready_usd": high.usd_for(high.ready_h),
        "restarts_usd": high.usd_for(high.restart_h + high.lost_h),
        "least_billing_usd": high.usd_for(high.minimum_h),
        "traffic_usd": high.traffic_usd,
        "disk_usd": high.disk_usd,
        "unknown": list(cost.unknown),
    }


def job_offers_json(found: CurrentOffers, ranking: JobRanking, limit: int, credit_usd: float) -> dict[str, Any]:
    """JSON of `gpuwatch plan job` for offers, cheapest job first."""

    as_of = rfc3339(found.as_of)
    return {
        "method": METHOD_TEXT,
        "samples": ranking.seen,
        "since": as_of,
        "until": as_of,
        "source": found.source,
        "offers": [
            offer_json(one.offer, one.price)
            | cost_json(one.cost)
            | {"after_credit_usd": max(0.0, one.cost.microusd / MICRO - credit_usd)}
            for one in ranking.placed[:limit]
        ],
        "refused": [{"reason": reason, "offers": count} for reason, count in ranking.refused],
    }
