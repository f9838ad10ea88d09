"""Clauses that few watches use: prices by speed and memory, conditions as text, and limits from the history."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from gpuwatch.domain.market.money import price_text
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.pricing import MICRO, Commission, OfferPrice, price_of, usd
from gpuwatch.domain.plan.card_specs import card_specs_of
from gpuwatch.domain.watches.clause import FAR, Clause, Failure
from gpuwatch.domain.watches.past_limits import DROP_BY, NEW_LOW, PERCENTILE
from gpuwatch.domain.watches.reputation import machine_record_of, reputation
from gpuwatch.domain.watches.watch import Watch


def _limit_per_unit(watch: Watch, offer: Offer, price: OfferPrice, _now: datetime) -> Failure | None:
    limits = (
        ("usd_per_tflop_hour", watch.max_usd_tflop_hour, _tflops(offer)),
        ("usd_per_gib_hour", watch.max_usd_gib_hour, offer.gpu_memory_gib),
    )
    found = (_per_unit(clause, most, units, offer, price) for clause, most, units in limits if most is not None)
    return next(filter(None, found), None)


def _tflops(offer: Offer) -> float | None:
    specs = card_specs_of(offer.gpu)
    return None if specs is None else specs.fp16_tflops


def _per_unit(clause: str, most: Decimal, units: float | None, offer: Offer, price: OfferPrice) -> Failure | None:
    if not units:
        return Failure(clause, f"{clause}: unknown for {offer.gpu}")
    all_units = Decimal(repr(units)) * offer.gpu_count
    if price.price_microusd_hour <= most * all_units * MICRO:
        return None
    is_ = usd(price.price_microusd_hour) / all_units
    return Failure(clause, f"{clause}: {is_:.4g} > {most:f}", float(is_ / most) - 1 if most else FAR)


def _conditions(watch: Watch, offer: Offer, price: OfferPrice, _now: datetime) -> Failure | None:
    from gpuwatch.domain.watches.expression import holds, parse, why_not  # noqa: PLC0415 - few watches have one

    if watch.when is not None and not holds(parse(watch.when), offer, price):
        return Failure("when", f"when: {why_not(parse(watch.when), offer, price)}")
    conditions = [parse(text) for text in watch.any_of]
    if not conditions or any(holds(condition, offer, price) for condition in conditions):
        return None
    return Failure("any", f"any: {', and '.join(why_not(condition, offer, price) for condition in conditions)}")


def _reputation(watch: Watch, offer: Offer, _price: OfferPrice, _now: datetime) -> Failure | None:
    least = watch.min_reputation
    if least is None:
        return None
    is_ = reputation(offer.reliability, machine_record_of(offer, watch.records))
    if is_ >= least:
        return None
    text = f"min_reputation: {is_:.3f} < {least:g} ({reputation_basis(watch, offer)})"
    return Failure("min_reputation", text, 1 - is_ / least)


def reputation_basis(watch: Watch, offer: Offer) -> str:
    """The data behind the reputation of an offer's machine."""
    record, shown = machine_record_of(offer, watch.records), offer.reliability
    said = "unknown" if shown is None else f"{shown:.4g}"
    return f"reliability {said}; your launches there: {record.good} succeeded, {record.bad} failed"


def _past(watch: Watch, offer: Offer, price: OfferPrice, _now: datetime) -> Failure | None:
    """`new_low`, `drop_by` and `percentile`, if the current limits are known."""
    if watch.past is None:
        return None
    if offer.kind is not OfferKind.LIVE:  # kinds of price are never mixed, and the limits are based on live prices
        clause = NEW_LOW if watch.new_low_s is not None else DROP_BY if watch.drop_by is not None else PERCENTILE
        return Failure(clause, f"{clause}: it is a list price, and only live prices are compared")
    # the GPU price as stored in the history: with a disk of that size, and with the offer's commission
    as_stored = price_of(offer, watch.past.disk_gb, Commission(repr(price.commission_rate)))
    is_ = as_stored.price_microusd_hour / offer.gpu_count
    limit = watch.past.unmet(offer, is_)
    if limit is None:
        return None
    if limit.microusd_gpu_hour is None:
        return Failure(limit.clause, f"{limit.clause}: {limit.basis}")
    text = f"{limit.clause}: ${price_text(usd(round(is_)), most=6)} is not {limit.how} {limit.basis}"
    return Failure(limit.clause, text, max(0.0, is_ / limit.microusd_gpu_hour - 1))


RARE_CLAUSES: tuple[Clause, ...] = (_reputation, _limit_per_unit, _conditions, _past)
