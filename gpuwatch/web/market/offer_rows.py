"""Offers as rows of a page: what a person reads of each, and which watches it fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.market.money import MICRO, disk_usd_hour
from gpuwatch.domain.market.offer import OfferKind, clean, marks
from gpuwatch.language import translate as _
from gpuwatch.web.launches.rent_page import rent_path

if TYPE_CHECKING:
    from gpuwatch.app.market.current_offers import CurrentOffers
    from gpuwatch.app.market.market_by_gpu import WatchedPrices
    from gpuwatch.domain.market.money import OfferPrice
    from gpuwatch.domain.market.offer import Offer
    from gpuwatch.domain.market.resold import FoldedOffer
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.engine.launches.renting.candidate_selection import UnavailableProviders


class OfferRow(NamedTuple):
    """One offer.

    Attributes:
        where: provider and place, with the others that show the same stock.
        fits: the watches that accept it at or under their limit.
        since: at this price; None: not recorded.
        rent_path: the page that rents it; empty: gpuwatch cannot.
    """

    offer: Offer
    price: OfferPrice
    microusd_gpu_hour: float
    where: str
    tags: Sequence[str]
    fits: Sequence[str]
    since: datetime | None
    rent_path: str

    @property
    def host(self) -> str:
        """The host's reliability, or that the provider itself is the host."""
        reliability = self.offer.reliability
        return "" if reliability is None else f"{100 * reliability:.1f}"

    @property
    def disk_microusd_hour(self) -> float:
        """The listed price of the quoted disk."""
        return disk_usd_hour(self.offer) * MICRO

    @property
    def commission_microusd_hour(self) -> int:
        """What is added to the listed price."""
        return self.price.rent_microusd_hour - self.price.listed_microusd_hour


OfferRows = Callable[["FoldedOffer[Match]"], OfferRow]


def offer_rows(watched: WatchedPrices, current: CurrentOffers, unable: UnavailableProviders) -> OfferRows:
    """Return what makes a row of an offer."""

    def row(folded: FoldedOffer[Match]) -> OfferRow:
        match = folded.primary
        offer = match.offer
        return OfferRow(
            offer=offer,
            price=match.price,
            microusd_gpu_hour=match.price_microusd_gpu_hour,
            where=_where(offer, folded.also),
            tags=[_TAGS[mark]() if mark in _TAGS else mark for mark in _marks(offer)],
            fits=watched.fits(offer),
            since=current.since.get(offer.identity),
            rent_path=rent_path(offer, unable),
        )

    return row


_TAGS: dict[str, Callable[[], str]] = {
    "spot": lambda: _("spot"),
    OfferKind.LISTED.value: lambda: _("list price"),
    OfferKind.HISTORY.value: lambda: _("recorded"),
}


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
