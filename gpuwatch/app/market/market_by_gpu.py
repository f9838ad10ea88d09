"""The offers of now by GPU, each with its price among those of 30 days and the watches that it fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.market.market_ranks import GpuRank
from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.money import MICRO, Commission
from gpuwatch.domain.market.offer import OfferKind, is_slice
from gpuwatch.domain.market.price_rank import Standing
from gpuwatch.domain.watches.match import matches
from gpuwatch.engine.market.browse import sorted_offers
from gpuwatch.engine.market.watch_search import RENTAL_TYPES
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural

if TYPE_CHECKING:
    from gpuwatch.domain.market.offer import Offer
    from gpuwatch.domain.market.resold import FoldedOffer
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch

CHEAP_SHARE = 0.1  # assumed: a price is cheap if it was lower in at most a tenth of the known hours
_NAMED = 3


class GpuOffers(msgspec.Struct, frozen=True, kw_only=True):
    """The offers of one GPU with one kind of price; whole GPUs and slices never share a row.

    Attributes:
        offers: cheapest GPU price first; resold stock counts once.
        rank: its past; empty for slices and list prices, which nobody compares with.
        limit: the highest limit of the watches of this GPU, in micro-dollars per GPU-hour; None: no watch.
    """

    gpu: str
    kind: OfferKind
    is_slice: bool
    memory_gib: float | None
    offers: Sequence[FoldedOffer[Match]]
    rank: GpuRank
    limit: float | None

    @property
    def now(self) -> float:
        """The cheapest price, in micro-dollars per GPU-hour."""
        return self.offers[0].primary.price_microusd_gpu_hour

    @property
    def share(self) -> float | None:
        """The share of the hours of 30 days that were cheaper."""
        return self.rank.share_below(self.now)


class WatchedPrices:
    """The watches by GPU, to tell which of them an offer fits, and at which limit."""

    def __init__(self, watches: Iterable[Watch], commissions: Mapping[str, Commission], now: datetime) -> None:
        self._commissions, self._now = commissions, now
        self._by_gpu: dict[str, list[Watch]] = {}
        for watch in watches:
            for gpu in watch.gpu_names:
                self._by_gpu.setdefault(gpu, []).append(watch)

    def fits(self, offer: Offer) -> tuple[str, ...]:
        """The names of the watches that accept an offer at or under their limit."""
        watches = self._by_gpu.get(offer.gpu, ())
        return tuple(watch.name for watch in watches if matches(watch, (offer,), self._commissions, self._now))

    def of_gpu(self, gpu: str, *, spot: bool | None = None) -> list[Watch]:
        """The watches of a GPU that look for this rental type."""
        found = self._by_gpu.get(gpu, [])
        return [watch for watch in found if spot is None or spot in RENTAL_TYPES[watch.spot]]

    def limit(self, gpu: str, *, spot: bool | None) -> float | None:
        """The highest limit for a GPU, in micro-dollars per GPU-hour; None: no watch looks for it."""
        limits = [float(watch.max_price_usd_gpu_hour) * MICRO for watch in self.of_gpu(gpu, spot=spot)]
        return max(limits, default=None)


_NO_PAST = GpuRank()


def offers_by_gpu(
    found: Iterable[Match], ranks: Mapping[str, GpuRank], watched: WatchedPrices, *, spot: bool | None
) -> list[GpuOffers]:
    """The offers by GPU: those of watches first, then the cheapest compared with their past."""
    groups: dict[tuple[str, OfferKind, bool], list[FoldedOffer[Match]]] = {}
    for one in sorted_offers(found, "gpu-price"):
        offer = one.primary.offer
        kind = OfferKind.LISTED if offer.kind is OfferKind.LISTED else OfferKind.LIVE
        groups.setdefault((offer.gpu, kind, is_slice(offer)), []).append(one)
    rows = [_gpu_offers(*key, mine, ranks, watched.limit(key[0], spot=spot)) for key, mine in groups.items()]
    return sorted(rows, key=_order)


def _gpu_offers(
    gpu: str,
    kind: OfferKind,
    sliced: bool,
    offers: Sequence[FoldedOffer[Match]],
    ranks: Mapping[str, GpuRank],
    limit: float | None,
) -> GpuOffers:
    is_compared, specs = kind is OfferKind.LIVE and not sliced, gpu_specs().get(gpu)
    return GpuOffers(
        gpu=gpu,
        kind=kind,
        is_slice=sliced,
        memory_gib=offers[0].primary.offer.gpu_memory_gib if specs is None else specs.memory_gib,
        offers=offers,
        rank=ranks.get(gpu, _NO_PAST) if is_compared else _NO_PAST,
        limit=limit if is_compared else None,
    )


def _order(one: GpuOffers) -> tuple[bool, bool, float, float, str]:
    is_compared = one.kind is OfferKind.LIVE and not one.is_slice
    share = 2.0 if one.share is None else one.share  # unknown: after all others
    return not is_compared, one.limit is None, share, one.now, one.gpu


def market_answer(rows: Sequence[GpuOffers]) -> tuple[str, str]:
    """What is cheap today, in one sentence, and what is dear or unknown, in another; the second may be empty."""
    known = [(one.share, one) for one in rows if one.share is not None]
    cheap = sorted(((share, one.gpu) for share, one in known if share <= CHEAP_SHARE and _stands(one, Standing.CHEAP)))
    dear = sorted(((share, one.gpu) for share, one in known if _stands(one, Standing.DEAR)), reverse=True)
    if not known:
        return _("Too little history to tell what is cheap today."), ""
    names = [gpu for _share, gpu in cheap[:_NAMED]]
    if cheap:
        more = len(cheap) - len(names)
        listed = joined([*names, _("{count} more").format(count=more)] if more else names)
        answer = translate_plural("{names} is cheap today.", "{names} are cheap today.", len(cheap))
        first = answer.format(names=listed)
    else:
        first = _("Nothing is unusually cheap today.")
    if not dear:
        return first, ""
    share, gpu = dear[0]
    second = _("{gpu} costs more than in {percent} % of the last 30 days.")
    return first, second.format(gpu=gpu, percent=min(99, int(100 * share)))


def _stands(one: GpuOffers, standing: Standing) -> bool:
    return one.rank.standing(one.now) is standing


def joined(names: Sequence[str]) -> str:
    """Names as a list: "A", "A and B", "A, B and C"."""
    if len(names) < 2:
        return "".join(names)
    return _("{names} and {last}").format(names=", ".join(names[:-1]), last=names[-1])
