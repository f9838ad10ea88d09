"""Every price of the tape that a watch could have paid, judged once: what a replay then sorts in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from gpuwatch.analysis.tape import Listing, Spell, Tape
from gpuwatch.backtest.offers import offer_of
from gpuwatch.market.pricing import Commission
from gpuwatch.watches.decide import Match
from gpuwatch.watches.match import accepts, match_of, price_for, rank
from gpuwatch.watches.match import is_near as rearms
from gpuwatch.watches.watch import Watch

Key = tuple[str, str, bool]  # provider, GPU, spot: what one question of a sweep is about
Progress = Callable[[int, int], None]  # done, of how much
_ANY_PRICE_USD = Decimal(1_000_000)
_TOLD_EVERY = 4096
_A_SPELL = Spell(0, 0, 0, None, 1, None)


class Candidate(NamedTuple):
    """One spell of an offer that fits the watch but perhaps for its price."""

    from_s: int
    gone_s: int | None
    key: Key
    rank: tuple[Any, ...]
    match: Match
    accepted: bool  # by the watch as it is
    near: bool  # by the watch at `rearm` times its threshold


def candidates(
    watch: Watch,
    tape: Tape,
    commissions: Mapping[str, Commission],
    reference_disk_gb: float,
    progress: Progress | None = None,
) -> list[Candidate]:
    """Those of a tape, by `from_s`.

    Args:
        watch: without clauses that the history cannot judge.
        reference_disk_gb: the disk that a quote holds where none is asked for.
    """
    fits = _Fits(watch, commissions, reference_disk_gb)
    found = []
    for number, spell in enumerate(tape.spells):
        if progress is not None and number % _TOLD_EVERY == 0:
            progress(number, len(tape.spells))
        listing = tape.listings[spell.listing]
        if not fits.but_for_its_price(spell.listing, listing):
            continue
        offer = offer_of(listing, spell, reference_disk_gb)
        price = price_for(watch, offer, commissions)
        match = match_of(watch, offer, price)
        key = (offer.provider, offer.gpu, offer.spot)
        is_accepted = accepts(watch, offer, price, offer.observed_at)
        is_near = is_accepted or (watch.rearm > 1 and rearms(watch, [offer], commissions, offer.observed_at))
        found.append(Candidate(spell.from_s, spell.gone_s, key, rank(match), match, is_accepted, is_near))
    return found


class _Fits:
    """Does a listing fit, whatever it costs? Its facts do not change along the tape, so each is asked once."""

    def __init__(self, watch: Watch, commissions: Mapping[str, Commission], reference_disk_gb: float) -> None:
        self._watch = at_any_price(watch)
        self._commissions = commissions
        self._disk_gb = reference_disk_gb
        self._known: dict[int, bool] = {}

    def but_for_its_price(self, number: int, listing: Listing) -> bool:
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = listing.identity.gpu in self._watch.gpu_names and self._judged(listing)
        return known

    def _judged(self, listing: Listing) -> bool:
        offer = offer_of(listing, _A_SPELL, self._disk_gb)
        return accepts(self._watch, offer, price_for(self._watch, offer, self._commissions), offer.observed_at)


def at_any_price(watch: Watch) -> Watch:
    """The same watch, with no limit to what it pays."""
    return msgspec.structs.replace(
        watch, max_price_usd_gpu_hour=_ANY_PRICE_USD, auto=None, max_job_cost_usd=None, job=None
    )
