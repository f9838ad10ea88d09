"""Polls of several scopes by time, kept as columns: a year of them takes ten bytes each, a list of objects two hundred.

Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import overload

from gpuwatch.domain.history.market_history import MarketPoll
from gpuwatch.domain.history.packed_polls import PollColumns, kind_of_flags

_CHUNK = 4096


class MarketPolls(Sequence[MarketPoll]):
    """A sequence of polls, each made when it is read."""

    def __init__(self, at_s: array[int], kinds: array[int], polls_by_kind: Sequence[MarketPoll]) -> None:
        self.at_s = at_s
        self.kinds = kinds  # of each poll: its place in `polls_by_kind`
        self.polls_by_kind = polls_by_kind

    def __len__(self) -> int:
        return len(self.at_s)

    @overload
    def __getitem__(self, place: int) -> MarketPoll: ...

    @overload
    def __getitem__(self, place: slice) -> MarketPolls: ...

    def __getitem__(self, place: int | slice) -> MarketPoll | MarketPolls:
        if isinstance(place, slice):
            return MarketPolls(self.at_s[place], self.kinds[place], self.polls_by_kind)
        return self.polls_by_kind[self.kinds[place]]._replace(at_s=self.at_s[place])

    def __iter__(self) -> Iterator[MarketPoll]:
        rest = [poll[1:] for poll in self.polls_by_kind]
        for start in range(0, len(self.at_s), _CHUNK):
            part = slice(start, start + _CHUNK)
            for at_s, kind in zip(self.at_s[part], self.kinds[part], strict=True):
                yield MarketPoll(at_s, *rest[kind])

    def proving_absence(self) -> MarketPolls:
        """Return the polls that prove it."""
        proves = bytes(poll.proves_absence for poll in self.polls_by_kind)
        at_s, kinds = (
            array(column.typecode, compress(column, map(proves.__getitem__, self.kinds)))
            for column in (self.at_s, self.kinds)
        )
        return MarketPolls(at_s, kinds, self.polls_by_kind)


def poll_columns_of(polls: Sequence[MarketPoll]) -> MarketPolls:
    """Return polls by time as columns."""
    if isinstance(polls, MarketPolls):
        return polls
    kinds: dict[MarketPoll, int] = {}
    numbers = array("H", [kinds.setdefault(poll._replace(at_s=0), len(kinds)) for poll in polls])
    return MarketPolls(array("q", [poll.at_s for poll in polls]), numbers, list(kinds))


def complete_polls(polls: Sequence[MarketPoll]) -> Sequence[MarketPoll]:
    """Return the polls that prove the absence of an offer."""
    return polls.proving_absence() if isinstance(polls, MarketPolls) else [one for one in polls if one.proves_absence]


def poll_times(polls: Sequence[MarketPoll]) -> Sequence[int]:
    """Return the times of polls."""
    return polls.at_s if isinstance(polls, MarketPolls) else [poll.at_s for poll in polls]


def joined_polls(parts: Sequence[Sequence[MarketPoll]]) -> Sequence[MarketPoll]:
    """Return the polls of several histories by time; at the same time, in the order of the histories."""
    columns = [part for part in parts if isinstance(part, MarketPolls)]
    if len(columns) < len(parts):
        return sorted(chain.from_iterable(parts), key=lambda poll: poll.at_s)
    at_s, kinds, polls_by_kind = array("q"), array("H"), list[MarketPoll]()
    for part in columns:
        at_s.extend(part.at_s)
        kinds.extend(kind + len(polls_by_kind) for kind in part.kinds)
        polls_by_kind += part.polls_by_kind
    order = sorted(range(len(at_s)), key=at_s.__getitem__)
    ordered_s, ordered_kinds = (array(one.typecode, map(one.__getitem__, order)) for one in (at_s, kinds))
    return MarketPolls(ordered_s, ordered_kinds, polls_by_kind)


def market_polls(scopes: Iterable[tuple[str, str, bool, PollColumns]], *, covering: bool = False) -> MarketPolls:
    """Return the polls of scopes by time.

    Args:
        scopes: provider, GPU ("": all), spot and polls.
        covering: they are only covering polls, and each counts as complete, also one that shows no dearer offers.
    """
    import numpy as np  # noqa: PLC0415 most daemons read no history

    polls_by_kind: list[MarketPoll] = []
    times_s, numbers, kinds = array("q"), array("q"), array("H")
    for provider, gpu, spot, polls in scopes:
        places: dict[int, int] = {}
        for flags in set(polls.flags):
            completeness, covers, lane = kind_of_flags(flags)
            answered = completeness == "complete" or covering
            one = MarketPoll(0, provider, gpu, spot, answered, "sweep" if covers else lane, completeness == "failed")
            places[flags] = len(polls_by_kind)
            polls_by_kind.append(one)
        kinds.extend(map(places.__getitem__, polls.flags))
        times_s.extend(polls.at_s)
        numbers.extend(polls.numbers)
    order = np.lexsort((np.asarray(numbers), np.asarray(times_s)))
    at_s, ordered_kinds = (array(column.typecode, np.asarray(column)[order].tobytes()) for column in (times_s, kinds))
    return MarketPolls(at_s, ordered_kinds, polls_by_kind)
