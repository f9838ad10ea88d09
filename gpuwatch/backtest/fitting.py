"""What of a tape one watch could have taken, as a series: the history that its own limit is found in."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from gpuwatch.analysis.series import PriceSeries, series_of
from gpuwatch.analysis.tape import Listing, Spell, Tape
from gpuwatch.backtest.candidates import at_any_price
from gpuwatch.backtest.offers import judgeable, offer_of
from gpuwatch.market.pricing import Commission
from gpuwatch.watches.match import NO_COMMISSION, accepts, price_for
from gpuwatch.watches.watch import Watch


def fitting_series(
    watch: Watch,
    tape: Tape,
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
    wide = at_any_price(judgeable(watch, tape.listings)[0])

    def fits(listing: Listing) -> bool:
        offer = offer_of(listing, Spell(0, 0, 0, None, 1, None), reference_disk_gb)
        is_asked = providers is None or offer.provider in providers
        return is_asked and accepts(wide, offer, price_for(wide, offer, commissions), offer.observed_at)

    def gpu_price(number: int, spell: Spell) -> float:
        who = tape.listings[number].identity
        rate = float(commissions.get(who.provider, NO_COMMISSION).on_top_rate(None))
        disk_gb = reference_disk_gb if watch.disk_gb is None else watch.disk_gb
        return spell.listed_microusd_hour(disk_gb) * (1 + rate) / who.gpu_count

    fitting = [fits(listing) for listing in tape.listings]
    spells = [spell for spell in tape.spells if fitting[spell.listing]]
    return series_of(msgspec.structs.replace(tape, spells=spells), gpu_price)
