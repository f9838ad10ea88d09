"""Offers as rows of a page: what a person reads of each, and which watches it fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.app.market.outbid_risk import known_risks, risk_text
from gpuwatch.app.reader_text import percent
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.bootstrap.provider_access import not_rentable
from gpuwatch.domain.market.money import MICRO, disk_usd_hour
from gpuwatch.domain.market.offer import OfferKind, clean, marks
from gpuwatch.language import translate as _
from gpuwatch.web.launches.rent_page import rent_path

if TYPE_CHECKING:
    from gpuwatch.app.market.current_offers import CurrentOffers
    from gpuwatch.app.market.market_by_gpu import WatchedPrices
    from gpuwatch.domain.market.money import OfferPrice
    from gpuwatch.domain.market.offer import Offer
    from gpuwatch.domain.market.outbid_risk import OutbidRisk
    from gpuwatch.domain.market.resold import FoldedOffer
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.web.page import View


class OfferRow(NamedTuple):
    """One offer.

    Attributes:
        where: provider and place, with the others that show the same stock.
        fits: the watches that accept it at or under their limit.
        since: at this price; None: not recorded.
        rent_path: the page that rents it; empty: gpuwatch cannot.
        risk: of being outbid at its machine; None: nobody bids for it, or too little is known.
    """

    offer: Offer
    price: OfferPrice
    microusd_gpu_hour: float
    where: str
    tags: Sequence[str]
    fits: Sequence[str]
    since: datetime | None
    rent_path: str
    risk: OutbidRisk | None = None

    @property
    def host(self) -> str:
        """The host's reliability, or that the provider itself is the host."""
        reliability = self.offer.reliability
        return "" if reliability is None else f"{100 * reliability:.1f}"

    @property
    def risk_text(self) -> str:
        """The risk of being outbid in sentences; empty: see `risk`."""
        return "" if self.risk is None else risk_text(self.risk)

    @property
    def disk_microusd_hour(self) -> float:
        """The listed price of the quoted disk."""
        return disk_usd_hour(self.offer) * MICRO

    @property
    def commission_microusd_hour(self) -> int:
        """What is added to the listed price."""
        return self.price.rent_microusd_hour - self.price.listed_microusd_hour


OfferRows = Callable[["Sequence[FoldedOffer[Match]]"], list[OfferRow]]


def offer_rows(view: View, watched: WatchedPrices, current: CurrentOffers) -> OfferRows:
    """Return what makes rows of offers; the risk of being outbid of all takes one query."""
    unable = not_rentable(view.settings)

    def rows(shown: Sequence[FoldedOffer[Match]]) -> list[OfferRow]:
        risks = known_risks(view.settings, [one.primary for one in shown], view.now)
        return [row(one, risks.get(one.primary.offer.identity)) for one in shown]

    def row(folded: FoldedOffer[Match], risk: OutbidRisk | None) -> OfferRow:
        match = folded.primary
        offer = match.offer
        return OfferRow(
            offer=offer,
            price=match.price,
            microusd_gpu_hour=match.price_microusd_gpu_hour,
            where=_where(offer, folded.also),
            tags=[*(_TAGS[mark]() if mark in _TAGS else mark for mark in _marks(offer)), *_risk_tags(risk)],
            fits=watched.fits(offer),
            since=current.since.get(offer.identity),
            rent_path=rent_path(offer, unable),
            risk=risk,
        )

    return rows


_TAGS: dict[str, Callable[[], str]] = {
    "spot": lambda: _("spot"),
    OfferKind.LISTED.value: lambda: _("list price"),
    OfferKind.HISTORY.value: lambda: _("recorded"),
}


def _risk_tags(risk: OutbidRisk | None) -> list[str]:
    return [] if risk is None else [_("outbid {percent} of the time").format(percent=percent(risk.over_share))]


def _marks(offer: Offer) -> list[str]:
    return [*(["spot"] if offer.spot else []), *(clean(mark) for mark in marks(offer))]


def _where(offer: Offer, also: Sequence[str]) -> str:
    sellers = [provider_title(offer.provider), *map(provider_title, also)]
    names = (
        sellers[0]
        if len(sellers) == 1
        else _("{name}, also {others}").format(name=sellers[0], others=", ".join(sellers[1:]))
    )
    return f"{names} · {clean(offer.place)}" if offer.place else names
