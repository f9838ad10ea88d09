"""The market as one watch was shown it, question by question. Only what changed costs anything."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from decimal import Decimal
from heapq import heappop, heappush
from typing import Any

from gpuwatch.domain.analysis.market_history import MarketPoll
from gpuwatch.domain.backtest.candidates import BacktestCandidate, QueryKey
from gpuwatch.domain.market.pricing import MICRO, microusd, threshold_microusd
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import Watch

HUNT = "hunt"
_HAIR = 1e-6  # more than floats lose
_LOOKS_MISSED = 3  # so many may fail before what they would have shown is not known any more
_RankedOffer = tuple[tuple[Any, ...], int]  # rank, number of the candidate


class _QueryOffers:
    """What one question showed when it was asked last."""

    def __init__(self) -> None:
        self.under: list[_RankedOffer] = []  # at or under the threshold, cheapest first …
        self.matches: list[Match] = []  # … and what stands there
        self.near = 0  # how many are at or under threshold × rearm
        self.fitting: list[tuple[float, int]] = []  # a heap of GPU prices; what is gone leaves when it comes up
        self.seen_s: int | None = None  # the newest question
        self.whole_s: int | None = None  # the newest answer that proves what it does not show
        self.is_seen = False  # was it answered, and not too long ago?
        self.age_s = 0  # how old its answer may be
        self.coming: list[int] = []  # candidates, by when they came
        self.came = 0  # so many of them were there
        self.changes: list[tuple[int, bool, int]] = []  # (when, did it come?, which) of those near the threshold
        self.done = 0  # so many of them were shown


class KnownOffers:
    """Walks along the candidates of one watch. An offer stands from the look that saw it to the one that missed it."""

    def __init__(self, watch: Watch, found: Sequence[BacktestCandidate], age_s: Callable[[str], int]) -> None:
        self._found = found
        self._age_s = age_s
        self._boxes: dict[QueryKey, _QueryOffers] = {}
        self._has_changed = True
        self._under: tuple[Match, ...] = ()
        limit = watch.max_price_usd_gpu_hour
        rearm = Decimal(repr(max(watch.rearm, 1.0)))
        most_job = None if watch.max_job_cost_usd is None else microusd(watch.max_job_cost_usd * rearm)
        self._is_under = bytearray(len(found))
        far = float(limit * rearm) * MICRO * (1 + _HAIR)
        for number, one in enumerate(found):
            if one.gone_s is not None and one.gone_s <= one.from_s:
                continue
            box = self._box(one.key)
            box.coming.append(number)
            if one.microusd_gpu_hour <= far and one.match is not None:
                self._is_under[number] = one.accepted and _at_most(limit, one.match)
                if self._is_under[number] or _at_most(limit * rearm, one.match, most_job):
                    _expect(box, number, one)
        for box in self._boxes.values():
            box.changes.sort()  # at one moment, what is gone goes first

    def asked(self, key: QueryKey, poll: MarketPoll) -> None:
        """A question. One that failed blinds; a part of an answer, or a hunt, shows but proves no absence."""
        box = self._box(key)
        self._has_changed = self._has_changed or box.is_seen is poll.failed
        every_s = 0 if box.seen_s is None else poll.at_s - box.seen_s
        box.age_s = max(self._age_s(poll.provider), _LOOKS_MISSED * every_s)
        box.seen_s, box.is_seen = poll.at_s, not poll.failed
        self._advance(box, poll.at_s)

    def whole(self, key: QueryKey, at_s: int) -> None:
        """What was not on offer at this moment is known to have been gone."""
        self._box(key).whole_s = at_s

    def drop_older(self, at_s: int) -> None:
        """What nobody asked for so long is not known any more."""
        for box in self._boxes.values():
            if box.is_seen and box.seen_s is not None and box.seen_s < at_s - box.age_s:
                box.is_seen = False
                self._has_changed = True

    def asked_lately(self, at_s: int) -> frozenset[QueryKey]:
        """What was asked, answered or not."""
        boxes = self._boxes.items()
        return frozenset(key for key, box in boxes if box.seen_s is not None and box.seen_s >= at_s - box.age_s)

    def known(self, at_s: int) -> frozenset[QueryKey]:
        """Of what is it known that there is nothing else?"""
        boxes = self._boxes.items()
        return frozenset(
            key for key, box in boxes if box.is_seen and box.whole_s is not None and box.whole_s >= at_s - box.age_s
        )

    @property
    def under(self) -> tuple[Match, ...]:
        """What is on offer at or under the threshold as far as is known, cheapest first."""
        if self._has_changed:
            seen = [box for box in self._boxes.values() if box.is_seen and box.under]
            self._under = tuple(seen[0].matches) if len(seen) == 1 else self._merged(seen)
            self._has_changed = False
        return self._under

    @property
    def near(self) -> bool:
        """Is a fitting offer at or under threshold × rearm?"""
        return any(box.is_seen and box.near for box in self._boxes.values())

    @property
    def cheapest(self) -> float | None:
        """The lowest GPU price of what fits, whatever it costs; in micro-dollars."""
        lowest = [self._lowest(box) for box in self._boxes.values() if box.is_seen]
        return min((price for price in lowest if price is not None), default=None)

    def _merged(self, boxes: Sequence[_QueryOffers]) -> tuple[Match, ...]:
        places = sorted((place, match) for box in boxes for place, match in zip(box.under, box.matches, strict=True))
        return tuple([match for _, match in places])

    def _lowest(self, box: _QueryOffers) -> float | None:
        assert box.seen_s is not None
        while box.fitting:
            gone_s = self._found[box.fitting[0][1]].gone_s
            if gone_s is None or gone_s > box.seen_s:
                return box.fitting[0][0]
            heappop(box.fitting)
        return None

    def _box(self, key: QueryKey) -> _QueryOffers:
        box = self._boxes.get(key)
        if box is None:
            box = self._boxes[key] = _QueryOffers()
        return box

    def _advance(self, box: _QueryOffers, at_s: int) -> None:
        found, coming, changes = self._found, box.coming, box.changes
        while box.came < len(coming) and found[coming[box.came]].from_s <= at_s:
            number = coming[box.came]
            heappush(box.fitting, (found[number].microusd_gpu_hour, number))
            box.came += 1
        while box.done < len(changes) and changes[box.done][0] <= at_s:
            _, came, number = changes[box.done]
            self._put(box, number, came)
            box.done += 1

    def _put(self, box: _QueryOffers, number: int, came: bool) -> None:
        box.near += 1 if came else -1
        match = self._found[number].match
        if not self._is_under[number] or match is None:
            return
        self._has_changed = True
        place = (self._found[number].rank, number)
        at = bisect_left(box.under, place)
        if came:
            box.under.insert(at, place)
            box.matches.insert(at, match)
        else:
            del box.under[at], box.matches[at]


def _expect(box: _QueryOffers, number: int, one: BacktestCandidate) -> None:
    box.changes.append((one.from_s, True, number))
    if one.gone_s is not None:
        box.changes.append((one.gone_s, False, number))


def _at_most(limit: Decimal, match: Match, most_job: int | None = None) -> bool:
    if match.price.price_microusd_hour > threshold_microusd(limit, match.offer.gpu_count):
        return False
    return most_job is None or (match.job_microusd is not None and match.job_microusd <= most_job)
