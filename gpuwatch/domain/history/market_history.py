"""The observed market over time: offers and their prices from poll to poll, and the polls themselves. Pure.

All questions about the past use a market history, from the store or from a file of price rows (`price_rows`). Times are
whole seconds since 1970 (UTC), money whole micro-dollars.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import msgspec

from gpuwatch.domain.market.money import MICRO, REFERENCE_DISK_GB, disk_microusd_hour
from gpuwatch.domain.market.offer import ListedOffer, Offer
from gpuwatch.domain.setup.durations import HOUR_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A poll's result counts until the next poll, but at most this long: with a quota of 20,000 rows a day, a big market can
# be read every two hours.
COVERAGE_S = 3 * HOUR_S
_NONE: Final = -1  # in a column of `MarketIntervals`
_LISTED_FIELDS = ListedOffer.__struct_fields__
_listed_values = attrgetter(*_LISTED_FIELDS)


class OfferInterval(NamedTuple):
    """One price of one listing."""

    listing: int  # its index in `MarketHistory.listings`
    from_s: int  # the first poll at this price
    seen_s: int  # the last poll known to have seen it at this price
    ended_s: int | None  # the first poll without it; None: no poll since, or still on offer at the end
    machine_microusd_hour: int  # listed, whole offer, without the disk
    disk_microusd_gb_month: int | None

    def listed_microusd_hour(self, disk_gb: float) -> int:
        """Listed price of the whole offer with a disk of this size."""
        return self.machine_microusd_hour + disk_microusd_hour(self.disk_microusd_gb_month, disk_gb)


class MarketIntervals(Sequence[OfferInterval]):
    """Intervals kept as columns, each made when it is read: 44 bytes an interval, a list of objects takes 250."""

    def __init__(self, columns: Sequence[array[int]] | None = None) -> None:
        self._columns = [array(code) for code in "iqqqqq"] if columns is None else list(columns)

    @property
    def listing(self) -> Sequence[int]:
        """The listing of each interval."""
        return self._columns[0]

    @property
    def from_s(self) -> Sequence[int]:
        """The beginning of each interval."""
        return self._columns[1]

    @property
    def ended_s(self) -> Sequence[int]:
        """The end of each interval; -1: None."""
        return self._columns[3]

    @property
    def machine_microusd_hour(self) -> Sequence[int]:
        """The listed price of each interval."""
        return self._columns[4]

    @property
    def disk_microusd_gb_month(self) -> Sequence[int]:
        """The price of the disk of each interval; -1: None."""
        return self._columns[5]

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, place: int) -> OfferInterval: ...

    @overload
    def __getitem__(self, place: slice) -> MarketIntervals: ...

    def __getitem__(self, place: int | slice) -> OfferInterval | MarketIntervals:
        if isinstance(place, slice):
            return MarketIntervals([column[place] for column in self._columns])
        listing, from_s, seen_s, ended_s, machine, disk = self._columns
        return _interval(listing[place], from_s[place], seen_s[place], ended_s[place], machine[place], disk[place])

    def __iter__(self) -> Iterator[OfferInterval]:
        return map(_interval, *self._columns)

    def extend(self, intervals: Iterable[OfferInterval]) -> None:
        """Append intervals."""
        for column, values in zip(self._columns, zip(*intervals, strict=True), strict=False):
            column.extend([_NONE if value is None else value for value in values])

    def of_listings(self, wanted: Sequence[bool]) -> MarketIntervals:
        """Return those of the wanted listings."""
        chosen = bytes(map(wanted.__getitem__, self._columns[0]))
        return MarketIntervals([array(column.typecode, compress(column, chosen)) for column in self._columns])

    def at(self, places: NDArray[np.int64]) -> MarketIntervals:
        """Return those at these places, in their order."""
        import numpy as np  # noqa: PLC0415 most daemons read no history

        return MarketIntervals([array(one.typecode, np.asarray(one)[places].tobytes()) for one in self._columns])

    def order_by_time(self) -> None:
        """Sort them by beginning, then by listing."""
        import numpy as np  # noqa: PLC0415 most daemons read no history

        order = np.lexsort([np.asarray(column) for column in self._columns[:2]])
        for number, column in enumerate(self._columns):
            self._columns[number] = array(column.typecode, np.asarray(column)[order].tobytes())


def _interval(listing: int, from_s: int, seen_s: int, ended_s: int, machine: int, disk: int) -> OfferInterval:
    return OfferInterval(listing, from_s, seen_s, None if ended_s < 0 else ended_s, machine, None if disk < 0 else disk)


def interval_columns(intervals: Sequence[OfferInterval]) -> MarketIntervals:
    """Return intervals as columns."""
    if isinstance(intervals, MarketIntervals):
        return intervals
    columns = MarketIntervals()
    columns.extend(intervals)
    return columns


class SnapshotOffer(ListedOffer, frozen=True, kw_only=True, gc=False):
    """An offer that was on sale at a moment, with its price; `provider` is the name of its source in the history."""

    machine_microusd_hour: int  # as in `OfferInterval`
    disk_microusd_gb_month: int | None
    since: datetime  # at this price

    def listed_microusd_hour(self, disk_gb: float = REFERENCE_DISK_GB) -> int:
        """Listed price of the whole offer with a disk of this size."""
        return self.machine_microusd_hour + disk_microusd_hour(self.disk_microusd_gb_month, disk_gb)


class MarketPoll(NamedTuple):
    """One query at one time."""

    at_s: int
    provider: str
    gpu: str  # "": all
    spot: bool
    answered: bool  # False: no answer, or a partial one, which does not prove absence
    lane: str = "sweep"  # "hunt": a daemon's query for cheap offers, on which it decided
    failed: bool = False  # no answer at all

    @property
    def proves_absence(self) -> bool:
        """Did it read every offer? Only a complete sweep does; a hunt requests cheap offers only."""
        return self.answered and self.lane == "sweep"


class CompletePoll(NamedTuple):
    """A poll that read every offer of a scope, so that it proves what was on offer."""

    at_s: int
    to_microusd: int | None = None  # covers the offers at or under this price; None: all


class MarketHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The market over a period."""

    listings: tuple[ListedOffer, ...]
    intervals: Sequence[OfferInterval]  # by `from_s`
    polls: Sequence[MarketPoll]  # by `at_s`
    source: str  # for display: "the store", or the name of a file
    until_s: int | None = None  # nothing is known from this time on; None: as long as the last poll counts

    @property
    def starts_s(self) -> int | None:
        """The first poll; None: there is none."""
        return self.polls[0].at_s if self.polls else None

    @property
    def ends_s(self) -> int | None:
        """The last poll."""
        return self.polls[-1].at_s if self.polls else None

    def before(self, at_s: int) -> MarketHistory:
        """The part known before a time, as if later polls had not happened."""
        intervals = [_cut(interval, at_s) for interval in self.intervals if interval.from_s < at_s]
        return msgspec.structs.replace(self, intervals=intervals, polls=_until(self.polls, at_s))


class MarketFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the market. None: any.

    `provider` None: all live offers, and their imported prices; "vastai": this provider, with its imported prices;
    "gcp:listed": its price list, which does not prove stock.
    """

    gpus: tuple[str, ...] | None = None  # canonical names or families
    provider: str | None = None
    gpu_count_min: int | None = None
    gpu_count_max: int | None = None
    spot: bool | None = None
    verified: bool = False  # only hosts that their provider called verified when it listed them last

    def has_count(self, gpu_count: int) -> bool:
        """Does it include offers of this many GPUs?"""
        return (self.gpu_count_min or 1) <= gpu_count and (
            self.gpu_count_max is None or gpu_count <= self.gpu_count_max
        )

    def has_spot(self, spot: bool) -> bool:
        """Does it include this rental type?"""
        return self.spot is None or self.spot == spot

    def has_gpu(self, gpu: str, family: str, models: frozenset[str]) -> bool:
        """Does it include this GPU? "RTX 4090" is a family, too; if it is in `models`, it means only that model."""
        return self.gpus is None or gpu in self.gpus or (family in self.gpus and family not in models)


def quoted_offer(
    listing: ListedOffer,
    price: OfferInterval | SnapshotOffer,
    observed_at: datetime,
    disk_gb: float,
    **facts: Any,
) -> Offer:
    """The offer at a recorded price, quoted with a disk of this size if the disk has a price of its own.

    Args:
        facts: fields that are known better than the listing states them.
    """
    disk = price.disk_microusd_gb_month
    fields = dict(zip(_LISTED_FIELDS, _listed_values(listing), strict=True))
    fields["gpu_wire"], fields["gpu_known"] = listing.gpu, True
    return Offer(
        **fields | facts,
        quoted_usd_hour=price.listed_microusd_hour(disk_gb) / MICRO,
        quoted_disk_gb=0.0 if disk is None else disk_gb,
        disk_usd_gb_month=None if disk is None else disk / MICRO,
        observed_at=observed_at,
    )


def moment_of(at_s: int | None) -> datetime | None:
    """A time of a history as a datetime; None stays None."""
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)


def _cut(interval: OfferInterval, at_s: int) -> OfferInterval:
    if interval.ended_s is not None and interval.ended_s < at_s:
        return interval
    return interval._replace(seen_s=min(interval.seen_s, at_s - 1), ended_s=None)


def _until(polls: Sequence[MarketPoll], at_s: int) -> Sequence[MarketPoll]:
    return polls[: bisect_left(polls, at_s, key=lambda poll: poll.at_s)]
