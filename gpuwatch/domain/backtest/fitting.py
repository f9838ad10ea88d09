"""What of a tape one watch could have taken, as a series: the history that its own limit is found in."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from gpuwatch.domain.analysis.market_history import ListedOffer, MarketHistory, OfferInterval
from gpuwatch.domain.analysis.price_series import PriceSeries, series_of
from gpuwatch.domain.backtest.candidates import at_any_price
from gpuwatch.domain.backtest.offers import offer_of, without_unrecorded_clauses
from gpuwatch.domain.market.pricing import Commission
from gpuwatch.domain.watches.match import NO_COMMISSION, accepts, price_for
from gpuwatch.domain.watches.watch import Watch


def fitting_series(
    watch: Watch,
    market_history: MarketHistory,
    commissions: Mapping[str, Commission],
    reference_disk_gb: float,
    providers: Collection[str] | None = None,
) -> PriceSeries:
    """The lowest GPU price of each hour of what fits the watch, whatever it costs; with its disk and the commission.

    Clauses that the history cannot judge are left out.

    Args:
        reference_disk_gb: the disk that a quote holds where none is asked for.
        providers: only these; None: all.
    """
    wide = at_any_price(without_unrecorded_clauses(watch, market_history.listings)[0])

    def fits(listing: ListedOffer) -> bool:
        offer = offer_of(listing, OfferInterval(0, 0, 0, None, 1, None), reference_disk_gb)
        is_asked = providers is None or offer.provider in providers
        return is_asked and accepts(wide, offer, price_for(wide, offer, commissions), offer.observed_at)

    def gpu_price(number: int, interval: OfferInterval) -> float:
        who = market_history.listings[number].identity
        rate = float(commissions.get(who.provider, NO_COMMISSION).on_top_rate(None))
        disk_gb = reference_disk_gb if watch.disk_gb is None else watch.disk_gb
        return interval.listed_microusd_hour(disk_gb) * (1 + rate) / who.gpu_count

    fitting = [fits(listing) for listing in market_history.listings]
    intervals = [interval for interval in market_history.intervals if fitting[interval.listing]]
    return series_of(msgspec.structs.replace(market_history, intervals=intervals), gpu_price)
