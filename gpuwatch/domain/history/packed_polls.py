"""The polls of one scope (provider, GPU, rental type) as columns, and a day of them as bytes. Pure.

A poll takes some three bytes that way, and stays after its row is gone: what it proves about the market is needed as
long as the prices are.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain
from typing import Final, NamedTuple

import msgspec

from gpuwatch.domain.setup.durations import DAY_S

COMPLETENESS: Final = ("failed", "partial", "truncated", "complete")
LANES: Final = ("sweep", "hunt", "check", "import", "other")
COVERS_FLAG: Final = 4
LANE_SHIFT: Final = 3
_ANSWER, _COVERS, _LANE, _BOUND = 3, COVERS_FLAG, 7, 64  # the bits of a poll's flags
_NO_BOUND = -1
_MUST_SWAP = sys.byteorder == "big"
_LEVEL = 6  # of compression: 9 takes twice as long and saves a percent
_COLUMNS = msgspec.msgpack.Decoder(tuple[bytes, bytes, bytes, bytes])


class PackedPoll(NamedTuple):
    """One poll, as far as it says something about the market."""

    at_s: int
    number: int  # its id: the order of polls within a second
    completeness: str
    covers: bool
    complete_to_microusd: int | None
    lane: str


class PollKind(NamedTuple):
    """What the flags of a poll say."""

    completeness: str
    covers: bool
    lane: str


class PollColumns:
    """Polls of one scope, by time, then number. All columns have the same length."""

    __slots__ = ("at_s", "bounds", "flags", "numbers")

    def __init__(self, at_s: array[int], numbers: array[int], flags: bytearray, bounds: array[int]) -> None:
        self.at_s = at_s
        self.numbers = numbers
        self.flags = flags
        self.bounds = bounds  # covers the offers at or under this price; below 0: all

    def __len__(self) -> int:
        return len(self.at_s)

    def __iter__(self) -> Iterator[PackedPoll]:
        for at_s, number, flags, bound in zip(self.at_s, self.numbers, self.flags, self.bounds, strict=True):
            completeness, covers, lane = kind_of_flags(flags)
            yield PackedPoll(at_s, number, completeness, covers, None if bound < 0 else bound, lane)

    def extend(self, later: PollColumns) -> None:
        """Append polls that are not earlier than the last one."""
        self.at_s.extend(later.at_s)
        self.numbers.extend(later.numbers)
        self.flags.extend(later.flags)
        self.bounds.extend(later.bounds)

    def between(self, since_s: int, until_s: int) -> PollColumns:
        """Return those in [since_s, until_s)."""
        low, high = bisect_left(self.at_s, since_s), bisect_left(self.at_s, until_s)
        if low == 0 and high == len(self):
            return self
        return PollColumns(self.at_s[low:high], self.numbers[low:high], self.flags[low:high], self.bounds[low:high])

    def newest_cover_s(self) -> int | None:
        """Return when the last one that covers was sent, or None."""
        newest_first = zip(reversed(self.at_s), reversed(self.flags), strict=True)
        return next((at_s for at_s, flags in newest_first if flags & _COVERS), None)

    def covering(self) -> PollColumns:
        """Return those that cover: an offer that such a poll does not show is gone."""
        if all(map(_COVERS.__and__, self.flags)):
            return self
        places = [place for place, flags in enumerate(self.flags) if flags & _COVERS]
        return PollColumns(
            array("q", [self.at_s[place] for place in places]),
            array("q", [self.numbers[place] for place in places]),
            bytearray(self.flags[place] for place in places),
            array("q", [self.bounds[place] for place in places]),
        )


def kind_of_flags(flags: int) -> PollKind:
    """Decode a poll's flags."""
    return PollKind(COMPLETENESS[flags & _ANSWER], bool(flags & _COVERS), LANES[flags >> LANE_SHIFT & _LANE])


def poll_columns(polls: Iterable[PackedPoll] = ()) -> PollColumns:
    """Return polls, in any order, as columns."""
    ordered = sorted(polls, key=lambda poll: poll[:2])
    return PollColumns(
        array("q", [poll.at_s for poll in ordered]),
        array("q", [poll.number for poll in ordered]),
        bytearray(map(_flags, ordered)),
        array("q", [_NO_BOUND if poll.complete_to_microusd is None else poll.complete_to_microusd for poll in ordered]),
    )


def _flags(poll: PackedPoll) -> int:
    lane = LANES.index(poll.lane if poll.lane in LANES else "other")
    return COMPLETENESS.index(poll.completeness) | (_COVERS if poll.covers else 0) | lane << LANE_SHIFT


def pack_polls(polls: PollColumns, day: int) -> bytes:
    """Encode the polls of one UTC day (days since 1970): four columns, of which times and numbers are differences."""
    flags = bytes(flag | (_BOUND if bound >= 0 else 0) for flag, bound in zip(polls.flags, polls.bounds, strict=True))
    columns = (
        _differences("i", polls.at_s, day * DAY_S),
        _differences("q", polls.numbers, 0),
        flags,
        _bytes_of(array("q", [bound for bound in polls.bounds if bound >= 0])),
    )
    return zlib.compress(msgspec.msgpack.encode(columns), _LEVEL)


def packed_columns(packed: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the four columns that `pack_polls` encoded. Raises ValueError: they are damaged."""
    try:
        return _COLUMNS.decode(zlib.decompress(packed))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error


def unpack_polls(packed: bytes, day: int) -> PollColumns:
    """Decode what `pack_polls` made. Raises ValueError: it is damaged."""
    columns = packed_columns(packed)
    at_s = array("q", accumulate(_array_of("i", columns[0]), initial=day * DAY_S))
    numbers = array("q", accumulate(_array_of("q", columns[1]), initial=0))
    del at_s[0], numbers[0]
    if not columns[3]:
        return PollColumns(at_s, numbers, bytearray(columns[2]), array("q", [_NO_BOUND]) * len(at_s))
    bounded = iter(_array_of("q", columns[3]))
    bounds = array("q", [next(bounded) if flag & _BOUND else _NO_BOUND for flag in columns[2]])
    return PollColumns(at_s, numbers, bytearray(flag & ~_BOUND for flag in columns[2]), bounds)


def _differences(kind: str, values: array[int], first: int) -> bytes:
    previous = chain((first,), values)
    return _bytes_of(array(kind, [value - before for value, before in zip(values, previous, strict=False)]))


def _bytes_of(values: array[int]) -> bytes:
    if _MUST_SWAP:
        values.byteswap()
    return values.tobytes()


def _array_of(kind: str, data: bytes) -> array[int]:
    values = array(kind)
    values.frombytes(data)
    if _MUST_SWAP:
        values.byteswap()
    return values
