"""The market as it was known at each look, as one watch sees it. Only what changed costs anything."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpuwatch.analysis.tape import Poll
from gpuwatch.backtest.candidates import Candidate, Key
from gpuwatch.market.pricing import threshold_microusd
from gpuwatch.watches.decide import Match
from gpuwatch.watches.watch import Watch

SWEEP, HUNT = "sweep", "hunt"
_Place = tuple[tuple[Any, ...], int]  # rank, number of the candidate


class _Box:
    """What stands on offer at one key, cheapest first."""

    __slots__ = ("fitting", "is_seen", "near", "seen_s", "under", "whole_s")

    def __init__(self) -> None:
        self.under: list[_Place] = []  # at or under the threshold
        self.fitting: list[_Place] = []  # at any price
        self.near = 0  # how many are at or under threshold × rearm
        self.seen_s = 0  # the newest question
        self.whole_s = 0  # the newest answer that proves what it does not show
        self.is_seen = False  # was it answered, and not too long ago?


class Shelf:
    """Walks along the candidates of one watch. An offer stands from the look that saw it to the one that missed it."""

    def __init__(self, watch: Watch, found: Sequence[Candidate]) -> None:
        self._found = found
        self._ends = sorted((i for i, one in enumerate(found) if one.gone_s is not None), key=lambda i: _gone(found[i]))
        self._begun = self._ended = 0
        self._boxes: dict[Key, _Box] = {}
        limit = watch.max_price_usd_gpu_hour
        self._is_under = [one.accepted and _at_most(limit, one) for one in found]
        wider = limit * Decimal(repr(watch.rearm))
        self._is_near = self._is_under if watch.rearm <= 1 else [one.near and _at_most(wider, one) for one in found]
        self._has_changed = True
        self._under: tuple[Match, ...] = ()

    def asked(self, key: Key, poll: Poll) -> None:
        """A question. One that failed blinds; a part of an answer, or a hunt, shows but proves no absence."""
        box = self._box(key)
        if box.is_seen is poll.failed:
            self._has_changed = True
        box.seen_s, box.is_seen = poll.at_s, not poll.failed
        if poll.answered and poll.lane == SWEEP:
            box.whole_s = poll.at_s

    def advance(self, at_s: int) -> None:
        """All that is known from a moment on. What began and was gone again in between was never seen."""
        found = self._found
        while self._begun < len(found) and found[self._begun].from_s <= at_s:
            self._place(self._begun)
            self._begun += 1
        while self._ended < len(self._ends) and _gone(found[self._ends[self._ended]]) <= at_s:
            self._take(self._ends[self._ended])
            self._ended += 1

    def drop_older(self, oldest_s: Mapping[str, int]) -> None:
        """What nobody asked for so long is not known any more: provider → the oldest question that counts."""
        for key, box in self._boxes.items():
            if box.is_seen and box.seen_s < oldest_s[key[0]]:
                box.is_seen = False
                self._has_changed = True

    def asked_since(self, oldest_s: Mapping[str, int]) -> frozenset[Key]:
        """What was asked at all."""
        return frozenset(key for key, box in self._boxes.items() if box.seen_s and box.seen_s >= oldest_s[key[0]])

    def known(self, oldest_s: Mapping[str, int]) -> frozenset[Key]:
        """Of what is it known that there is nothing else?"""
        boxes = self._boxes.items()
        return frozenset(key for key, box in boxes if box.is_seen and box.whole_s >= oldest_s[key[0]])

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

    def _place(self, number: int) -> None:
        one = self._found[number]
        box, place = self._box(one.key), (one.rank, number)
        insort(box.fitting, place)
        box.near += self._is_near[number]
        if self._is_under[number]:
            insort(box.under, place)
            self._has_changed = True

    def _take(self, number: int) -> None:
        one = self._found[number]
        box, place = self._box(one.key), (one.rank, number)
        del box.fitting[bisect_left(box.fitting, place)]
        box.near -= self._is_near[number]
        if self._is_under[number]:
            del box.under[bisect_left(box.under, place)]
            self._has_changed = True


def _at_most(limit: Decimal, one: Candidate) -> bool:
    return one.match.price.price_microusd_hour <= threshold_microusd(limit, one.match.offer.gpu_count)


def _gone(one: Candidate) -> int:
    return one.gone_s if one.gone_s is not None else 0
