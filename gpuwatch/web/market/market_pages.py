"""The pages of the market: all offers in the store, to filter, sort and group; and one GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from gpuwatch import providers
from gpuwatch.app.market.current_offers import current_offers, is_old
from gpuwatch.domain.market.money import MICRO, OfferPrice
from gpuwatch.domain.market.offer import Offer
from gpuwatch.engine.market.browse import offer_filter
from gpuwatch.errors import UsageError
from gpuwatch.web.page import Page, View

Priced = tuple[Offer, OfferPrice]
SHOWN = 100  # offers on one page
_SORTS: Mapping[str, Callable[[Priced], Any]] = {
    "gpu-price": lambda priced: priced[1].price_microusd_hour / priced[0].gpu_count,
    "price": lambda priced: priced[1].price_microusd_hour,
    "provider": lambda priced: (priced[0].provider, priced[1].price_microusd_hour / priced[0].gpu_count),
    "reliability": lambda priced: -(priced[0].reliability or 0.0),
}
_GROUPS: Mapping[str, Callable[[Offer], str]] = {
    "gpu": lambda offer: offer.gpu,
    "provider": lambda offer: offer.provider,
    "region": lambda offer: offer.place or "unknown",
}


def _show_market(view: View) -> Mapping[str, Any]:
    query = {
        **{name: view.query.get(name, "").strip() for name in ("gpu", "count", "max_price")},
        "provider": view.choice("provider", providers.names(), ""),
        "sort": view.choice("sort", _SORTS, "gpu-price"),
        "group": view.choice("group", _GROUPS, ""),
        "spot": view.choice("spot", ("no", "only", "any"), "any"),
        "verified": view.choice("verified", ("yes",), ""),
    }
    problem, current = None, None
    try:
        current = current_offers(view.settings, _filter(query), [query["provider"]] if query["provider"] else [])
    except UsageError as error:
        problem = str(error)
    matching = _within_price(current.offers if current else (), query["max_price"])
    matching.sort(key=_SORTS[query["sort"]])
    first = min(max(_page_number(view.query.get("page")), 1), max(1, -(-len(matching) // SHOWN)))
    return {
        "asked": query,
        "problem": problem,
        "as_of": current.as_of if current else None,
        "is_old": current is not None and is_old(current.as_of, view.now),
        "count": len(matching),
        "offers": [_row(*priced) for priced in matching[(first - 1) * SHOWN : first * SHOWN]],
        "groups": _group_rows(matching, query["group"]) if query["group"] else None,
        "page_number": first,
        "pages": max(1, -(-len(matching) // SHOWN)),
        "providers": list(view.settings.providers),
        "sorts": list(_SORTS),
        "group_names": list(_GROUPS),
    }


def _filter(query: Mapping[str, str]) -> Any:
    gpus = [query["gpu"]] if query["gpu"] else []
    max_price = query["max_price"] or None
    return offer_filter(
        gpus, count=query["count"] or None, spot=query["spot"], verified=query["verified"] == "yes", max_price=max_price
    )


def _within_price(offers: Sequence[Priced], max_price: str) -> list[Priced]:
    """Return the offers at or under the price, which the filter has validated."""
    if not max_price or not offers:
        return list(offers)
    max_microusd = float(max_price) * MICRO
    return [(offer, price) for offer, price in offers if price.price_microusd_hour <= max_microusd * offer.gpu_count]


def _page_number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 6 else 1


def _row(offer: Offer, price: OfferPrice) -> dict[str, Any]:
    listed, total = price.listed_microusd_hour, price.price_microusd_hour
    disk = 0.0
    if offer.disk_usd_gb_month is not None:
        disk = offer.disk_usd_gb_month * offer.quoted_disk_gb / 730  # source: providers bill a month as 730 hours
    return {
        "offer": offer,
        "gpu_price": total / offer.gpu_count / MICRO,
        "price": total / MICRO,
        "listed": listed / MICRO,
        "commission": (total - listed) / MICRO,
        "rate": price.commission_rate,
        "disk": disk,
        "disk_gb": offer.quoted_disk_gb,
    }


def _group_rows(offers: Sequence[Priced], by: str) -> list[dict[str, Any]]:
    groups: dict[str, list[float]] = {}
    for offer, price in offers:
        groups.setdefault(_GROUPS[by](offer), []).append(price.price_microusd_hour / offer.gpu_count / MICRO)
    rows = [
        {"name": name, "offers": len(each), "cheapest": min(each), "median": median(each)}
        for name, each in groups.items()
    ]
    return sorted(rows, key=lambda row: float(str(row["cheapest"])))


MARKET_PAGE = Page(name="Market", path="/market", template="market.html", show=_show_market, order=10)


def _show_gpu(view: View) -> Mapping[str, Any]:
    from gpuwatch.web.market.gpu_prices import gpu_prices  # noqa: PLC0415 it loads numpy

    return gpu_prices(view)


GPU_PAGE = Page(
    name="GPU",
    path="/gpu/{name}",
    template="gpu.html",
    show=_show_gpu,
    order=11,
    in_nav=False,
    scripts=("vendor/uplot/uPlot.iife.min.js", "charts.js"),
)
