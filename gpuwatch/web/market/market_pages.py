"""The pages of the market: all offers in the store, to filter, sort and group; and one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch import providers
from gpuwatch.app.market.current_offers import current_offers, is_old
from gpuwatch.domain.market.money import disk_usd_hour
from gpuwatch.engine.market.browse import GROUPS, SORTS, OfferFilter, group_offers, offer_filter, sorted_offers
from gpuwatch.errors import UsageError
from gpuwatch.web.page import Page, View

SHOWN = 100  # offers on one page


def _show_market(view: View) -> Mapping[str, Any]:
    query = {
        **{name: view.query.get(name, "").strip() for name in ("gpu", "count", "max_price")},
        "provider": view.choice("provider", providers.names(), ""),
        "sort": view.choice("sort", SORTS, "gpu-price"),
        "group": view.choice("group", GROUPS, ""),
        "spot": view.choice("spot", ("no", "only", "any"), "any"),
        "verified": view.choice("verified", ("yes",), ""),
    }
    problem, current = None, None
    try:
        current = current_offers(view.settings, _filter(query), [query["provider"]] if query["provider"] else [])
    except UsageError as error:
        problem = str(error)
    matches = current.matches if current else []
    offers = sorted_offers(matches, query["sort"])
    pages = max(1, -(-len(offers) // SHOWN))
    first = min(max(_page_number(view.query.get("page")), 1), pages)
    return {
        "asked": query,
        "problem": problem,
        "wanted": view.query.get("offer", "").strip(),
        "found": [one for one in offers if one.primary.offer.offer_id == view.query.get("offer", "").strip()],
        "as_of": current.as_of if current else None,
        "is_old": current is not None and is_old(current.as_of, view.now),
        "count": len(offers),
        "offers": offers[(first - 1) * SHOWN : first * SHOWN],
        "disk_usd_hour": disk_usd_hour,
        "groups": group_offers(matches, query["group"]) if query["group"] else None,
        "page_number": first,
        "pages": pages,
        "providers": list(view.settings.providers),
        "sorts": list(SORTS),
        "group_names": list(GROUPS),
    }


def _filter(query: Mapping[str, str]) -> OfferFilter:
    gpus = [query["gpu"]] if query["gpu"] else []
    max_price = query["max_price"] or None
    return offer_filter(
        gpus, count=query["count"] or None, spot=query["spot"], verified=query["verified"] == "yes", max_price=max_price
    )


def _page_number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 6 else 1


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
