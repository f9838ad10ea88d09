"""The pages of the market: each GPU with its price among those of 30 days, all offers, and one GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuwatch.app.history.spark_text import week_label
from gpuwatch.app.market.current_offers import CurrentOffers, current_offers, is_old
from gpuwatch.app.market.market_by_gpu import GpuOffers, WatchedPrices, market_answer, offers_by_gpu
from gpuwatch.app.market.market_ranks import RecentRanks
from gpuwatch.app.watches.current_limits import known_limits
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.bootstrap.rules import all_commissions
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.market.money import rate_text
from gpuwatch.engine.market.browse import group_offers, offer_filter, sorted_offers
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.web.market.market_filters import GROUPINGS, MarketFilters
from gpuwatch.web.market.offer_rows import OfferRow, OfferRows, offer_rows
from gpuwatch.web.page import Page, View

if TYPE_CHECKING:
    from gpuwatch.domain.watches.decide import Match

SHOWN = 100  # offers on one page
GPUS_SHOWN = 12  # rows of GPUs at least; the others on request, as each brings its five cheapest offers
CHEAPEST = 5
RANKS = RecentRanks()  # of this process: they change once an hour
_SHARED_S = 10.0  # the dearest reading of all; providers are polled less often
_PAGE_SORTS = ("gpu-price", "price", "provider", "reliability")


def _show_market(view: View) -> Mapping[str, Any]:
    filters, wanted = MarketFilters.of(view), view.query.get("offer", "").strip()
    current = current_offers(view.settings, offer_filter([], spot="any"))
    problems = filters.problems()
    found = [] if problems else filters.selected(current.matches)
    watched = WatchedPrices(known_limits(view.settings, view.now), all_commissions(view.settings), view.now)
    rows = offer_rows(view, watched, current)
    stocks = sorted_offers(current.matches, "gpu-price") if wanted else ()
    shown = _by_gpu if filters.is_by_gpu else _all_offers
    return {
        "filters": filters,
        "problems": problems,
        "wanted": wanted,
        "alerted": rows([one for one in stocks if one.primary.offer.offer_id == wanted]),
        "as_of": current.as_of,
        "is_old": is_old(current.as_of, view.now),
        "count": len(found),
        "nothing": filters.best_to_drop(current.matches) if not found and not problems else None,
        "sellers": sorted({match.offer.provider for match in current.matches}, key=str.casefold),
        "names": sorted({match.offer.gpu for match in current.matches}),
        "left_out": _left_out(current),
        "title_of": provider_title,
        **shown(view, filters, found, rows, watched),
    }


def _by_gpu(
    view: View, filters: MarketFilters, found: Sequence[Match], rows: OfferRows, watched: WatchedPrices
) -> Mapping[str, Any]:
    scope = MarketFilter(spot=filters.spot, verified=bool(filters.get("verified")))
    ranks = RANKS.ranks(view.settings, scope, view.now)
    groups = offers_by_gpu(found, ranks, watched, spot=filters.spot)
    watched_rows = sum(group.limit is not None for group in groups)
    shown = groups if filters.get("all") else groups[: max(GPUS_SHOWN, watched_rows)]
    cheapest = iter(rows([one for group in shown for one in group.offers[:CHEAPEST]]))
    sold = translate_plural("{count} offer", "{count} offers", len(found)).format(count=f"{len(found):,}")
    sellers = len({match.offer.provider for match in found})
    at = translate_plural("{offers} at {count} provider.", "{offers} at {count} providers.", sellers)
    return {
        "answer": market_answer(groups) if groups else None,
        "supply": at.format(offers=sold, count=sellers),
        "groups": [GpuRow(group, list(islice(cheapest, len(group.offers[:CHEAPEST])))) for group in shown],
        "group_count": len(groups),
    }


def _all_offers(
    view: View, filters: MarketFilters, found: Sequence[Match], rows: OfferRows, watched: WatchedPrices
) -> Mapping[str, Any]:
    del view, watched
    sort = filters.get("sort") or _PAGE_SORTS[0]
    offers = sorted_offers(found, sort)
    pages = max(1, -(-len(offers) // SHOWN))
    page = min(max(filters.page, 1), pages)
    grouping = filters.get("group")
    return {
        "sort": sort,
        "groupings": GROUPINGS,
        "offers": rows(offers[(page - 1) * SHOWN : page * SHOWN]),
        "stock": len(offers),
        "page_number": page,
        "pages": pages,
        "offer_groups": group_offers(found, grouping) if grouping else None,
    }


def _left_out(current: CurrentOffers) -> list[tuple[str, datetime, int]]:
    """The providers whose offers are too old to show, since when, and how many."""
    return [(provider_title(name), at, count) for name, (at, count) in sorted(current.left_out.items())]


class GpuRow(NamedTuple):
    """One GPU with its cheapest offers."""

    group: GpuOffers
    offers: Sequence[OfferRow]

    @property
    def strip_label(self) -> str:
        """The strip in words."""
        spread = self.group.rank.spread
        if spread is None:
            return ""
        text = _("30 days: from {low} to {high}, median {median}, now {now}")
        low, high, median, now = (rate_text(one) for one in (spread.low, spread.high, spread.median, self.group.now))
        return text.format(low=low, high=high, median=median, now=now)

    @property
    def week(self) -> tuple[float | None, ...]:
        """The hours of seven days, of which the last is now; empty: nothing is recorded."""
        week = self.group.rank.week
        return (*week[1:], self.group.now) if week else ()

    @property
    def spark_label(self) -> str:
        """The line in words."""
        return week_label(self.week, self.group.limit)


MARKET_PAGE = Page(
    name="Market", path="/market", template="market.html", show=_show_market, order=10, shared_s=_SHARED_S
)


def _show_gpu(view: View) -> Mapping[str, Any]:
    from gpuwatch.web.market.gpu_prices import gpu_prices  # noqa: PLC0415 it loads numpy

    return gpu_prices(view)


GPU_PAGE = Page(
    name="GPU",
    path="/gpu/{name}",
    template="gpu.html",
    show=_show_gpu,
    order=11,
    scripts=("vendor/uplot/uPlot.iife.min.js", "charts.js"),
)
