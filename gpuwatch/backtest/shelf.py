"""The market as one watch was shown it, question by question. Only what changed costs anything."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from gpuwatch.analysis.tape import Poll
from gpuwatch.backtest.candidates import Candidate, Key
from gpuwatch.market.pricing import threshold_microusd
from gpuwatch.watches.decide import Match
from gpuwatch.watches.watch import Watch

SWEEP, HUNT = "sweep", "hunt"
_LOOKS_MISSED = 3  # so many may fail before what they would have shown is not known any more
_Place = tuple[tuple[Any, ...], int]  # rank, number of the candidate


class _Box:
    """What one question showed when it was asked last, cheapest first."""

    def __init__(self) -> None:
        self.under: list[_Place] = []  # at or under the threshold
        self.fitting: list[_Place] = []  # at any price
        self.near = 0  # how many are at or under threshold × rearm
        self.seen_s: int | None = None  # the newest question
        self.whole_s: int | None = None  # the newest answer that proves what it does not show
        self.is_seen = False  # was it answered, and not too long ago?
        self.age_s = 0  # how old its answer may be
        self.changes: list[tuple[int, bool, int]] = []  # (when, did it come?, number of the candidate), by time
        self.done = 0  # so many of them were shown

    def turned(self, at_s: int) -> Iterator[tuple[bool, int]]:
        """What came and went since the last question."""
        while self.done < len(self.changes) and self.changes[self.done][0] <= at_s:
            _, came, number = self.changes[self.done]
            self.done += 1
            yield came, number


class Shelf:
    """Walks along the candidates of one watch. An offer stands from the look that saw it to the one that missed it."""

    def __init__(self, watch: Watch, found: Sequence[Candidate], age_s: Callable[[str], int]) -> None:
        self._found = found
        self._age_s = age_s
        self._boxes: dict[Key, _Box] = {}
        for number, one in enumerate(found):
            box = self._box(one.key)
            if one.gone_s is not None and one.gone_s <= one.from_s:
                continue
            box.changes.append((one.from_s, True, number))
            if one.gone_s is not None:
                box.changes.append((one.gone_s, False, number))
        for box in self._boxes.values():
            box.changes.sort()  # at one moment, what is gone goes first
        limit = watch.max_price_usd_gpu_hour
        wider = limit * Decimal(repr(watch.rearm))
        self._is_under = [one.accepted and _at_most(limit, one) for one in found]
        self._is_near = self._is_under if watch.rearm <= 1 else [one.near and _at_most(wider, one) for one in found]
        self._has_changed = True
        self._under: tuple[Match, ...] = ()

    def asked(self, key: Key, poll: Poll) -> None:
        """A question. One that failed blinds; a part of an answer, or a hunt, shows but proves no absence."""
        box = self._box(key)
        self._has_changed = self._has_changed or box.is_seen is poll.failed
        every_s = 0 if box.seen_s is None else poll.at_s - box.seen_s
        box.age_s = max(self._age_s(poll.provider), _LOOKS_MISSED * every_s)
        box.seen_s, box.is_seen = poll.at_s, not poll.failed
        for came, number in box.turned(poll.at_s):
            self._put(box, number, came)

    def whole(self, key: Key, at_s: int) -> None:
        """What was not on offer at this moment is known to have been gone."""
        self._box(key).whole_s = at_s

    def drop_older(self, at_s: int) -> None:
        """What nobody asked for so long is not known any more."""
        for box in self._boxes.values():
            if box.is_seen and box.seen_s is not None and box.seen_s < at_s - box.age_s:
                box.is_seen = False
                self._has_changed = True

    def asked_lately(self, at_s: int) -> frozenset[Key]:
        """What was asked, answered or not."""
        boxes = self._boxes.items()
        return frozenset(key for key, box in boxes if box.seen_s is not None and box.seen_s >= at_s - box.age_s)

    def known(self, at_s: int) -> frozenset[Key]:
        """Of what is it known that there is nothing else?"""
        boxes = self._boxes.items()
        return frozenset(
            key for key, box in boxes if box.is_seen and box.whole_s is not None and box.whole_s >= at_s - box.age_s
        )

    @property
    def under(self) -> tuple[Match, ...]:
        """What is on offer at or under the threshold as far as is known, cheapest first."""
        if self._has_changed:
            places = [place for box in self._boxes.values() if box.is_seen for place in box.under]
            places.sort()
            self._under = tuple([self._found[number].match for _, number in places])
            self._has_changed = False
        return self._under

    @property
    def near(self) -> bool:
        """Is a fitting offer at or under threshold × rearm?"""
        return any(box.is_seen and box.near for box in self._boxes.values())

    @property
    def cheapest(self) -> Match | None:
        """The cheapest fitting offer, whatever it costs."""
        firsts = [box.fitting[0] for box in self._boxes.values() if box.is_seen and box.fitting]
        return self._found[min(firsts)[1]].match if firsts else None

    def _box(self, key: Key) -> _Box:
        box = self._boxes.get(key)
        if box is None:
            box = self._boxes[key] = _Box()
        return box

    def _put(self, box: _Box, number: int, came: bool) -> None:
        place = (self._found[number].rank, number)
        _change(box.fitting, place, came)
        box.near += self._is_near[number] * (1 if came else -1)
        if self._is_under[number]:
            _change(box.under, place, came)
            self._has_changed = True


def _change(places: list[_Place], place: _Place, came: bool) -> None:
    if came:
        insort(places, place)
    else:
        del places[bisect_left(places, place)]


def _at_most(limit: Decimal, one: Candidate) -> bool:
    return one.match.price.price_microusd_hour <= threshold_microusd(limit, one.match.offer.gpu_count)
