"""The cheapest class of GPU that fits a task, by current prices or by given ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.history.past_prices import gpu_names_of
from gpuwatch.app.market.current_offers import CurrentOffers, current_offers
from gpuwatch.app.plan.plan_request import FIT_OPTIONS, refuse_ignored_workload, refuse_keys
from gpuwatch.app.plan.plan_size import memory_needed
from gpuwatch.app.plan.speed_table import throughput_table
from gpuwatch.domain.market.json_view import number, rfc3339
from gpuwatch.domain.market.money import per_gpu_hour, per_hour, usd
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.plan.fit import (
    FIT_METHOD_TEXT,
    TOKEN_S,
    ClassChoice,
    CostMeasure,
    GpuTask,
    PricedClass,
    RankedClasses,
    TaskNeeds,
    floors_of,
    is_too_cheap,
    price_ratio,
    rank_classes,
)
from gpuwatch.domain.plan.job_hours import data_of
from gpuwatch.domain.plan.memory_need import gb_read_per_step
from gpuwatch.domain.plan.roofline import WorkMethod
from gpuwatch.domain.plan.throughput import speed_of
from gpuwatch.engine.market.browse import offer_filter
from gpuwatch.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwatch.domain.plan.plan_schema import FitRequest
    from gpuwatch.settings import Settings

_POLL_WITHIN_S = 30.0
_OF_OFFERS = ("provider", "spot", "listed", "when", "any_price")


class FitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The fitting classes, and the compared prices."""

    needs: TaskNeeds
    ranked: RankedClasses
    against: PricedClass | None  # the class that others are compared with
    prices: tuple[PricedClass, ...]
    as_of: datetime | None  # the newest poll; None: no poll
    source: str
    errors: tuple[str, ...] = ()  # why some prices may be missing, one line each


def plan_fit(request: FitRequest, settings: Callable[[], Settings]) -> FitPlan:
    """Find the classes that fit, cheapest first.

    Args:
        settings: loads the settings; not called if the prices are given.

    Raises:
        UsageError: the request is contradictory, or a name or the file cannot be used.
        StoreError: the store cannot be read.
    """
    if sum((bool(request.price), request.poll, request.data is not None)) > 1:
        raise UsageError("use only one of --price, --poll and --data")
    if request.price:
        refuse_keys(request, "applies to offers: omit --price", _OF_OFFERS, FIT_OPTIONS)
    refuse_ignored_workload(request, FIT_OPTIONS)
    needs = task_needs(request)
    as_of, source = None, "the given prices"
    errors: tuple[str, ...] = ()
    if request.price:
        prices = tuple(msgspec.structs.replace(price, gpu=gpu_names_of(price.gpu)[0]) for price in request.price)
    else:
        offers = _read_offers(request, settings())
        prices = _priced_classes(offers, is_recorded=not request.poll, disk_gb=disk_gb(request) or 0)
        as_of, source, errors = offers.as_of, offers.source, offers.errors
    return FitPlan(
        needs=needs,
        ranked=rank_classes(
            needs,
            _with_gpus(prices, request.gpu),
            request.by,
            None if request.price or request.any_price else floors_of(prices),
        ),
        against=None if request.against is None else cheapest_class(prices, source, request.against, 0),
        prices=prices,
        as_of=as_of,
        source=source,
        errors=errors,
    )


def task_needs(request: FitRequest) -> TaskNeeds:
    """The task's requirements on a GPU. Raises UsageError: the request is contradictory."""
    task, vram_gb, read_gb, speed = request.task or GpuTask.ANY, request.vram or 0.0, None, None
    table, work = throughput_table(), request.workload()
    if work is not None:
        if request.vram is not None:
            raise UsageError("use either --vram or --size-of")
        needed = memory_needed(work)
        vram_gb, read_gb = needed.gb, gb_read_per_step(needed.workload)
        of_method = GpuTask.TRAINING if needed.workload.trains else GpuTask.INFERENCE
        if task not in {GpuTask.ANY, of_method}:
            raise UsageError(f"--task {task.value} conflicts with --method {needed.workload.method.value}")
        if work.model.network is not None and not work.trains:
            name, gb = work.model.network.kind, f"{needed.gb:.1f}"
            raise UsageError(f"{name}: inference is ranked by the time of a token: use --vram {gb} without --task")
        task, speed = of_method, None if work.model.network else speed_of(needed.workload, table)
    if task is GpuTask.INFERENCE:
        refuse_keys(request, "applies to training only", ("any_link",), FIT_OPTIONS)
    token_s = TOKEN_S[request.latency]
    if token_s is not None and (task is not GpuTask.INFERENCE or not vram_gb):
        raise UsageError(
            f"--latency {request.latency.value} applies to inference: add --task inference, and --vram or --size-of"
        )
    return TaskNeeds(
        task=task,
        vram_gb=vram_gb,
        read_gb=read_gb,
        token_s=token_s,
        speed=speed,
        reached=table.shares(WorkMethod.DECODE),
        any_link=request.any_link,
        max_cards=request.max_cards,
    )


def disk_gb(request: FitRequest) -> int | None:
    """The disk that the named model needs, which is part of the price; None: no model was named."""
    work = request.workload()
    return None if work is None else ceil(data_of(work, None).disk_gb)


def _read_offers(request: FitRequest, settings: Settings) -> CurrentOffers:
    provider = (request.provider or "").removesuffix(":listed")
    if request.provider and provider != request.provider:
        kind = "listed"
    else:
        kind = "all" if request.listed or (request.data is not None and not provider) else "live"
    filter_ = offer_filter((), spot=request.spot, kind=kind, disk_gb=disk_gb(request), when=request.when)
    data, within_s = None if request.data is None else Path(request.data), _POLL_WITHIN_S if request.poll else None
    try:
        return current_offers(settings, filter_, (provider,) if provider else (), data, within_s)
    except StoreError as fault:
        raise type(fault)(f"{fault}; use --poll for current prices, or --price for your own") from fault


def cheapest_stored(settings: Settings, gpu: str, count: int) -> PricedClass:
    """The cheapest live offer in the store with at least `count` of a GPU.

    Raises:
        UsageError: no GPU has this name, or the store has no price.
        StoreError: the store cannot be read.
    """
    market = market_prices(settings)
    return cheapest_class(market.prices, market.source, gpu, count)


def stored_gpu_prices(settings: Settings) -> dict[str, Decimal]:
    """The lowest plausible on-demand price of each GPU in the store, USD per GPU-hour. Raises StoreError."""
    prices = market_prices(settings).prices
    floors, found = floors_of(prices), dict[str, Decimal]()
    for one in prices:
        usd_gpu_hour = one.usd_hour / one.cards if one.cards else None
        if usd_gpu_hour is not None and not is_too_cheap(one, floors):
            found[one.gpu] = min(usd_gpu_hour, found.get(one.gpu, usd_gpu_hour))
    return found


class MarketPrices(msgspec.Struct, frozen=True, kw_only=True):
    """All current prices, read once."""

    prices: tuple[PricedClass, ...]
    source: str
    as_of: datetime | None
    errors: tuple[str, ...]


def market_prices(settings: Settings, *, everything: bool = False, poll: bool = False) -> MarketPrices:
    """The current prices of on-demand offers.

    Args:
        everything: with spot offers and list prices.
        poll: ask the providers instead of reading the store.

    Raises:
        StoreError: the store cannot be read.
    """
    kinds = offer_filter((), spot="any", kind="all") if everything else offer_filter((), kind="live")
    offers = current_offers(settings, kinds, (), None, _POLL_WITHIN_S if poll else None)
    prices = _priced_classes(offers, is_recorded=not poll)
    return MarketPrices(prices=prices, source=offers.source, as_of=offers.as_of, errors=offers.errors)


def cheapest_class(prices: Sequence[PricedClass], source: str, gpu: str, count: int) -> PricedClass:
    """The cheapest with at least so many of a GPU, plausible ones first. Raises UsageError: there is none."""
    candidates = [price_class for price_class in _with_gpus(prices, (gpu,)) if price_class.cards >= count]
    if not candidates:
        raise UsageError(f"{source} has no offer with {count}× {gpu}; pass its price instead")
    floors = floors_of(prices)
    return min(candidates, key=lambda price_class: (is_too_cheap(price_class, floors), price_class.usd_hour))


def _with_gpus(prices: Sequence[PricedClass], gpus: Sequence[str]) -> list[PricedClass]:
    seen = frozenset(price_class.gpu for price_class in prices)
    names = {name for text in gpus for name in gpu_names_of(text, seen)}
    return [price_class for price_class in prices if not gpus or price_class.gpu in names]


def _priced_classes(offers: CurrentOffers, *, is_recorded: bool, disk_gb: float = 0) -> tuple[PricedClass, ...]:
    """The offers with the free disk, as classes.

    The price of a recorded offer follows from its list price, unrounded, because it is divided later.
    """
    return tuple(
        PricedClass(
            gpu=offer.gpu,
            cards=offer.gpu_count,
            usd_hour=usd(price.listed_microusd_hour) * (1 + Decimal(repr(price.commission_rate)))
            if is_recorded
            else usd(price.price_microusd_hour),
            provider=offer.provider,
            spot=offer.spot,
            listed=offer.kind is OfferKind.LISTED,
            reliability=offer.reliability,
            memory_gib=offer.gpu_memory_gib,
        )
        for offer, price in offers.offers
        if offer.disk_free_gb is None or offer.disk_free_gb >= disk_gb
    )


# --- JSON -------------------------------------------------------------------------------------------------------------


def fit_sentence(plan: FitPlan) -> str | None:
    """The best class in one plain sentence; None: no offer fits."""
    if not plan.ranked.choices:
        return None
    best = plan.ranked.choices[0]
    gpus, where = f"{best.priced.cards}× {best.gpu.name}", best.priced.provider
    price = per_hour(best.usd_hour)
    if best.priced.cards > 1:
        price += f" ({per_gpu_hour(best.usd_hour / best.priced.cards)})"
    doubt = ", but the price is implausibly low" if best.too_cheap else ""
    return f"The cheapest that fits is {gpus}{f' at {where}' if where else ''} for {price}{doubt}."


def plan_fit_json(plan: FitPlan) -> dict[str, Any]:
    """JSON of `gpuwatch plan fit`: every class."""
    needs, ranked = plan.needs, plan.ranked
    return {
        "sentence": fit_sentence(plan),
        "method": FIT_METHOD_TEXT,
        "samples": len(plan.prices),
        "since": rfc3339(plan.as_of),
        "until": rfc3339(plan.as_of),
        "source": plan.source,
        "task": needs.task.value,
        "vram_gb": needs.vram_gb,
        "max_token_ms": None if needs.token_s is None else needs.token_s * 1000,
        "by": ranked.by.value,
        "choices": [_choice_json(choice, plan.against) for choice in ranked.choices],
        "left_out": {why: list(gpus) for why, gpus in ranked.left_out.items()},
        "troubles": list(plan.errors),
    }


def _choice_json(choice: ClassChoice, other: PricedClass | None) -> dict[str, Any]:
    ratio = None
    if other is not None:
        low, high = price_ratio(choice.priced, other)
        ratio = {"than": other.gpu, "low": number(low), "high": number(high)}
    return {
        "gpu": choice.gpu.name,
        "gpu_count": choice.priced.cards,
        "cards_needed": choice.needed,
        "provider": choice.priced.provider,
        "spot": choice.priced.spot,
        "offers": choice.offers,
        "too_cheap": choice.too_cheap,
        "price_usd_hour": number(choice.usd_hour),
        "price_usd_gpu_hour": number(choice.usd_hour / choice.priced.cards),
        "price_usd_gb_hour": number(choice.per(CostMeasure.MEMORY)),
        "price_usd_tflop_hour": number(choice.per(CostMeasure.COMPUTE)),
        "price_usd_tb_s_hour": number(choice.per(CostMeasure.BANDWIDTH)),
        "token_ms": None if choice.token_s is None else choice.token_s.low * 1000,
        "token_ms_high": None if choice.token_s is None else choice.token_s.high * 1000,
        "times_dearer": ratio,
    }
