"""How a GPU stands: its cheapest offer now, how that changed, its place in its own history, how long offers last."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwatch.analysis.series import HOUR_S, LOOK_LASTS_S, PriceSeries, series_of
from gpuwatch.analysis.summary import cut_to, low_before, percentile
from gpuwatch.analysis.survival import Curve, Lives, kaplan_meier
from gpuwatch.analysis.tape import Tape
from gpuwatch.analysis.track import GpuPrice, whole_looks

CHANGES_H = (24, 7 * 24, 30 * 24)
LEAST_LIVES = 5  # of fewer, no median is told
LEAST_HOURS = 24  # with offers; among fewer, no place is told
NEVER = -1
METHOD = (
    "now: the newest look; changes: against the lowest price of the hour so long before it; percentile: mid-rank among "
    "the lowest prices of the hours with offers; life: Kaplan-Meier median of the offers that were seen to come to or "
    "under the price, from the middle between two looks to the middle between two looks"
)
Ints = NDArray[np.int64]


class Stays(NamedTuple):
    """Prices of offers, one an entry, sorted by offer and time."""

    listing: Ints
    from_s: Ints  # the look that saw it first at this price
    before_s: Ints  # the look before that; NEVER: there was none
    seen_s: Ints  # the last look that saw it so
    gone_s: Ints  # the first look that did not; NEVER: it still is so
    looked_s: Ints  # the newest look at all that could have seen it
    price: Ints  # micro-dollars per GPU-hour, with commission


class GpuPast(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one GPU; somebody looked at least once."""

    gpu: str
    series: PriceSeries  # 30 days further back than its history is asked about
    stays: Stays
    looked_s: int  # the newest look


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands; prices are micro-dollars per GPU-hour, with commission. None: not known."""

    gpu: str
    looked_s: int
    now: int | None
    changes: Mapping[int, float | None]  # hours back → 0.1: it is 10 % dearer now
    percentile: float | None  # 0: cheaper than ever
    known_hours: int  # what the percentile is among
    offers: int
    under: int | None  # what the lives are about
    life: Curve

    @property
    def is_life_known(self) -> bool:
        """Is it told by enough offers?"""
        return self.life.samples >= LEAST_LIVES


def standing_of(past: GpuPast, since_s: int, under: int | None) -> Standing:
    """How it stands.

    Args:
        since_s: its own history begins here.
        under: the price that lives are about; None: the median price, by time on offer.
    """
    stays, now_at = past.stays, datetime.fromtimestamp(past.looked_s, UTC)
    stands = (stays.gone_s == NEVER) & (stays.looked_s > past.looked_s - LOOK_LASTS_S)
    now = int(stays.price[stands].min()) if stands.any() else None
    before = {hours: low_before(past.series, now_at, hours) for hours in CHANGES_H}
    history = cut_to(past.series, since_s // HOUR_S)
    limit = median_price(stays, since_s) if under is None else under
    lives = Lives([], []) if limit is None else lives_at(stays, limit, since_s)
    return Standing(
        gpu=past.gpu,
        looked_s=past.looked_s,
        now=now,
        changes={hours: None if low is None or now is None else now / low - 1 for hours, low in before.items()},
        percentile=None if now is None else _place(history, now),
        known_hours=history.known,
        offers=int(np.unique(stays.listing[stands]).size),
        under=limit,
        life=kaplan_meier(*lives),
    )


def _place(history: PriceSeries, now: int) -> float | None:
    with_offers = sum(low is not None for low in history.lows)
    return percentile(history, now) if with_offers >= LEAST_HOURS else None


def median_price(stays: Stays, since_s: int) -> int | None:
    """Half of the offers cost no more, by time on offer."""
    ends = np.where(stays.gone_s == NEVER, stays.looked_s, stays.gone_s)
    lasted = np.maximum(ends - np.maximum(stays.from_s, since_s), 0)
    lasted = np.maximum(lasted, ends >= since_s)  # what only the newest look saw counts as well
    order = np.argsort(stays.price, kind="stable")
    gone_by = np.cumsum(lasted[order])
    if not len(gone_by) or not gone_by[-1]:
        return None
    return int(stays.price[order][np.searchsorted(gone_by, gone_by[-1] / 2)])


def lives_at(stays: Stays, limit: int, since_s: int) -> Lives:
    """How long each offer stayed at or under a price, if it was seen to come there; as `survival.lives_under`."""
    mine = Stays(*(column[stays.price <= limit] for column in stays))
    if not len(mine.price):
        return Lives([], [])
    other = mine.listing[1:] != mine.listing[:-1]
    apart = other | ((mine.gone_s[:-1] != NEVER) & (mine.from_s[1:] > mine.gone_s[:-1]))
    first = np.flatnonzero(np.concatenate(([True], apart)))
    last = np.concatenate((first[1:] - 1, [len(mine.price) - 1]))
    begun = (mine.before_s[first] != NEVER) & (mine.before_s[first] >= since_s)
    first, last = first[begun], last[begun]
    shortest = mine.seen_s[last] - mine.from_s[first]
    observed = mine.gone_s[last] != NEVER
    durations = np.where(observed, (shortest + mine.gone_s[last] - mine.before_s[first]) / 2, shortest)
    return Lives(durations.tolist(), observed.tolist())


def pasts_of(tape: Tape, priced: GpuPrice) -> list[GpuPast]:
    """Each GPU of a tape."""
    if tape.starts_s is None:
        return []
    return [_past_of(_of_gpu(tape, gpu), gpu, priced) for gpu in sorted({one.identity.gpu for one in tape.listings})]


def _past_of(tape: Tape, gpu: str, priced: GpuPrice) -> GpuPast:
    looks: dict[tuple[str, bool], list[int]] = {}
    for poll in whole_looks(tape):
        looks.setdefault((poll.provider, poll.spot), []).append(poll.at_s)
    rows = []
    for spell in sorted(tape.spells, key=lambda one: (one.listing, one.from_s)):
        identity = tape.listings[spell.listing].identity
        mine = looks.get((identity.provider, identity.spot), [spell.seen_s])
        gone_s = NEVER if spell.gone_s is None else spell.gone_s
        price = round(priced(spell.listing, spell))
        rows.append((spell.listing, spell.from_s, _before(mine, spell.from_s), spell.seen_s, gone_s, mine[-1], price))
    columns = np.array(rows, np.int64).reshape(-1, len(Stays._fields)).T
    newest_s = max((times[-1] for times in looks.values()), default=tape.ends_s or 0)
    return GpuPast(gpu=gpu, series=series_of(tape, priced), stays=Stays(*columns), looked_s=newest_s)


def _before(looks: list[int], at_s: int) -> int:
    index = bisect_left(looks, at_s)
    return looks[index - 1] if index else NEVER


def _of_gpu(tape: Tape, gpu: str) -> Tape:
    """The same tape, but for what others looked at; listings keep their numbers."""
    mine = {number for number, listing in enumerate(tape.listings) if listing.identity.gpu == gpu}
    scopes = {(tape.listings[number].identity.provider, tape.listings[number].identity.spot) for number in mine}
    return msgspec.structs.replace(
        tape,
        spells=[spell for spell in tape.spells if spell.listing in mine],
        polls=[poll for poll in tape.polls if poll.gpu in ("", gpu) and (poll.provider, poll.spot) in scopes],
    )
