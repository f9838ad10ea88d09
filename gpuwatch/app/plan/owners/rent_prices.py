"""What a machine costs an hour: by the cheapest live offer, or at one provider."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.forecasts.trend import public_prices
from gpuwatch.app.plan.plan_fit import cheapest_class
from gpuwatch.domain.forecasts.long_trend import quarter_text

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_fit import MarketPrices
    from gpuwatch.domain.plan.fit import PricedClass


class RentPrice(msgspec.Struct, frozen=True, kw_only=True):
    """The price of the machine for an hour, and who asks it. `quarter`: of the public list price, if it is one."""

    usd_hour: Decimal
    gpu: str
    provider: str
    quarter: str | None = None


def price_of(
    market: MarketPrices | None, names: Sequence[str], cards: int, *, spot: bool = False
) -> RentPrice | None:  # fmt: skip
    """The price of so many GPUs for an hour, by the cheapest plausible live offer that has them."""
    if market is None:
        return None
    live = [price for price in market.prices if price.spot is spot and not price.listed]
    return _cheapest(live, market.source, names, cards)


def price_at(market: MarketPrices | None, names: Sequence[str], cards: int, provider: str) -> RentPrice | None:
    """The price of a provider, else its newest list price among the public series; None: neither is known."""
    if market is not None:
        of_provider = [price for price in market.prices if price.provider == provider and not price.spot]
        if (known := _cheapest(of_provider, market.source, names, cards)) is not None:
            return known
    listed = [one for one in public_prices() if one.source == provider and one.gpu in names and not one.spot]
    if not listed:
        return None
    newest = max(listed, key=lambda one: (-names.index(one.gpu), one.quarter))  # the GPU that is meant, if it is listed
    usd = Decimal(repr(newest.usd_gpu_hour)) * cards
    return RentPrice(usd_hour=usd, gpu=newest.gpu, provider=provider, quarter=quarter_text(newest.quarter))


def _cheapest(prices: Sequence[PricedClass], source: str, names: Sequence[str], cards: int) -> RentPrice | None:
    found = []
    for name in names:
        of_gpu = [price for price in prices if price.gpu == name and price.cards >= cards]
        if of_gpu:
            one = cheapest_class(of_gpu, source, name, cards)
            usd_hour = one.usd_hour / one.cards * cards
            found.append(RentPrice(usd_hour=usd_hour, gpu=name, provider=one.provider or ""))
    return min(found, key=lambda one: one.usd_hour, default=None)
