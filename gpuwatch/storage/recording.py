"""Writes the changes of a poll. The daemon and the light writer of `check` share this code.

The order within a transaction: read the state, compare, write. `apply_to_memory` updates the cache after the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import microusd
from gpuwatch.errors import StoreError
from gpuwatch.ports import Answer
from gpuwatch.storage.answer_changes import (
    AnswerChanges,
    PriceChange,
    RecordedPoll,
    clean,
    covers,
    find_changes,
    save_quote,
)
from gpuwatch.storage.executor import Executor, Row
from gpuwatch.storage.machine_facts import MACHINE_FACTS, fact_cells, facts_hash
from gpuwatch.storage.open_prices import NEVER, OpenPrice, OpenPrices

_SMALL_STEP_S = 120  # after a smaller step back of the clock, recording waits
# A larger step is accepted, but only if little was written "later": a computer without a battery starts in 1970, and
# must not move months of history back to that year.
_MOVABLE_HOURS = 48

_DAY_S = 86_400
_QUOTA = """INSERT INTO quota_day (provider, day, rows) VALUES (?, ?, ?)
 ON CONFLICT (provider, day) DO UPDATE SET rows = quota_day.rows + excluded.rows"""
_POLL = """INSERT INTO poll (provider, lane, gpu, spot, at_s, completeness, covers, complete_to_microusd, rows, skipped,
 elapsed_ms, not_understood) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_MAX_REASONS = 12  # for skipped rows, of one poll
_REASON_LENGTH = 120
_OPEN = """INSERT INTO price_interval (series_id, seen_from_s, seen_to_s, machine_microusd_hour, disk_microusd_gb_month)
 VALUES (?, ?, NULL, ?, ?)"""
_CLOSE = "UPDATE price_interval SET seen_to_s = ? WHERE series_id = ? AND seen_from_s = ?"
_CORRECT = """UPDATE price_interval SET machine_microusd_hour = ?, disk_microusd_gb_month = ?
 WHERE series_id = ? AND seen_from_s = ?"""
# The facts of a machine in `series`, written when one of them or a price changes.
_FACT_COLUMNS = ("offer_id", "place_id", *(fact.column for fact in MACHINE_FACTS))
_SERIES = f"""INSERT INTO series (id, segment_id, machine_id, on_offer, {", ".join(_FACT_COLUMNS)})
 VALUES (?, ?, ?, 1{", ?" * len(_FACT_COLUMNS)})"""  # noqa: S608 - constants
_SERIES_OF = "SELECT segment_id, machine_id, id FROM series WHERE (segment_id, machine_id) IN"
_FACTS = f"UPDATE series SET on_offer = 1, {', '.join(f'{name} = ?' for name in _FACT_COLUMNS)} WHERE id = ?"  # noqa: S608
_GONE = "UPDATE series SET on_offer = 0 WHERE id = ?"
_SEGMENT = """INSERT INTO segment (id, provider, gpu, gpu_count, spot, gpu_family, gpu_memory_gib)
 VALUES (?, ?, ?, ?, ?, ?, ?)"""
_PLACE = "INSERT INTO place (id, region, country) VALUES (?, ?, ?)"
_PAIRS_PER_QUERY = 400  # pairs in one query: SQLite allows 32,766 parameters, older versions 999


class RecordedCounts(NamedTuple):
    """The number of identities that an answer changed."""

    changed: int = 0  # at another price
    new: int = 0
    delisted: int = 0


class EndedInterval(NamedTuple):
    """A newly closed interval, for the roll-up of the current hour."""

    segment_id: int
    series_id: int
    from_s: int
    until_s: int  # the poll that ended it
    machine_microusd: int
    disk_microusd: int | None


class WrittenPoll(NamedTuple):
    """A poll as written, for `apply_to_memory` after the commit."""

    poll: RecordedPoll
    changes: AnswerChanges
    open_prices: list[OpenPrice]  # one for each of `changes.new_prices`
    version: int

    @property
    def recorded(self) -> RecordedCounts:
        """The number of changes."""
        new = sum(1 for change in self.changes.new_prices if change.previous is None)
        return RecordedCounts(len(self.changes.new_prices) - new, new, len(self.changes.delisted))


def write_answer(
    executor: Executor, prices: OpenPrices, answer: Answer, lane: str, gpu: str, spot: bool
) -> WrittenPoll:
    """Write an answer: the poll, the quota, and the changes. `prices` must match the database."""
    poll = _recorded_poll(prices, answer, lane, clean(gpu, 200), int(spot))
    changes = find_changes(answer, poll, prices)
    executor.run(_POLL, _poll_row(poll, answer))
    if answer.rows > 0:
        executor.run(_QUOTA, (poll.provider, utc_day(answer.observed_at), answer.rows))
    open_prices = _ChangeWriter(executor, prices, poll).write(changes)
    hour = poll.at_s // 3600
    if prices.next_hour is None or hour < prices.next_hour:  # the first poll, or a late one: aggregate again
        prices.next_hour = hour
        executor.run("UPDATE history_state SET next_hour = ? WHERE id = 1", (hour,))
    version = prices.version
    if changes.new_prices or changes.delisted or poll.covers:
        version += 1
        executor.run("UPDATE history_state SET version = ? WHERE id = 1", (version,))
    return WrittenPoll(poll, changes, open_prices, version)


def utc_day(moment: datetime) -> int:
    """Return the days since 1970, UTC: the marketplace limits rows per day."""
    return int(moment.timestamp()) // _DAY_S


def apply_to_memory(written: WrittenPoll, prices: OpenPrices) -> list[EndedInterval]:
    """Update the cache to what was committed; return the intervals that ended."""
    poll, changes = written.poll, written.changes
    prices.version = written.version
    ended = [_ended_interval(open_price, poll.at_s) for open_price in changes.delisted]
    polled_prices = prices.prices_of(poll.provider, poll.spot)
    for open_price in changes.delisted:
        polled_prices.remove(open_price)
    for change, open_price in zip(changes.new_prices, written.open_prices, strict=True):
        provider_prices = prices.prices_of(poll.provider, int(change.offer.spot))
        if change.previous is not None and open_price.seen_from_s > change.previous.seen_from_s:
            ended.append(_ended_interval(change.previous, poll.at_s))
        open_price.mark = prices.polls
        provider_prices.add(open_price)
        provider_prices.mark_changed(open_price.gpu, poll.at_s)
    for open_price, offer in changes.facts:
        open_price.verification, open_price.facts = offer.verification, facts_hash(offer)
    if poll.covers:
        polled_prices.covered_s[poll.gpu] = poll.at_s
    return ended


def step_back(executor: Executor, provider: str, at_s: int) -> None:
    """Handle a clock that was wrong and is now at `at_s`: move later entries to this moment.

    Raises:
        StoreError: too much was written later, so this clock must be the wrong one.
    """
    hours = executor.rows(
        "SELECT count(*), max(hour) FROM (SELECT DISTINCT at_s / 3600 AS hour FROM poll"
        " WHERE provider = ? AND at_s > ?) AS later",
        (provider, at_s),
    )
    if hours[0][0] > _MOVABLE_HOURS:
        newest = datetime.fromtimestamp(hours[0][1] * 3600, UTC)
        raise StoreError(
            f"the clock is or was wrong: the history reaches to {newest:%Y-%m-%d %H}:00 UTC; set the clock"
        )
    own_series = "series_id IN (SELECT s.id FROM series s JOIN segment g ON g.id = s.segment_id WHERE g.provider = ?)"
    has_newer = """EXISTS (SELECT 1 FROM price_interval n
 WHERE n.series_id = price_interval.series_id AND n.seen_from_s > price_interval.seen_from_s)"""
    for sql, parameters in (
        ("UPDATE poll SET at_s = ? WHERE provider = ? AND at_s > ?", (at_s, provider, at_s)),
        (f"DELETE FROM price_interval WHERE seen_from_s >= ? AND {has_newer} AND {own_series}", (at_s, provider)),  # noqa: S608
        (f"DELETE FROM price_interval WHERE seen_from_s >= ? AND seen_to_s >= 0 AND {own_series}", (at_s, provider)),  # noqa: S608
        (f"UPDATE price_interval SET seen_from_s = ? WHERE seen_from_s > ? AND {own_series}", (at_s, at_s, provider)),  # noqa: S608
        (f"UPDATE price_interval SET seen_to_s = ? WHERE seen_to_s >= ? AND {own_series}", (at_s - 1, at_s, provider)),  # noqa: S608
        ("DELETE FROM hourly WHERE hour >= ?", (at_s // 3600,)),
        ("UPDATE history_state SET next_hour = ? WHERE next_hour > ?", (at_s // 3600, at_s // 3600)),
        ("UPDATE history_state SET version = version + 1", ()),  # other processes must reload
    ):
        executor.run(sql, parameters)


def clock_stepped_back(prices: OpenPrices, provider: str, at_s: int) -> bool:
    """Whether the database contains entries from this clock's future."""
    return prices.newest_change_s(provider) > at_s + _SMALL_STEP_S


def seconds(moment: datetime) -> int:
    """Return whole seconds since 1970."""
    return int(moment.timestamp())


def _recorded_poll(prices: OpenPrices, answer: Answer, lane: str, gpu: str, spot: int) -> RecordedPoll:
    """Return the poll with its time in the history: a sweep is at least a second later than everything it covers."""
    is_covering = covers(answer, lane)
    provider_prices = prices.prices_of(answer.provider, spot)
    at_s = seconds(answer.observed_at)
    if is_covering:
        at_s = max(at_s, provider_prices.newest_change(gpu) + 1)
    else:
        gpus = {offer.gpu for offer in answer.offers}
        at_s = max(at_s, max((provider_prices.newest_change(name) for name in gpus), default=NEVER))
    complete_to = answer.complete_to_usd_hour if is_covering and answer.complete_to_usd_hour is not None else None
    bound = None if complete_to is None or answer.completeness == "complete" else microusd(repr(complete_to))
    return RecordedPoll(answer.provider, lane, gpu, spot, at_s, is_covering, bound)


def _poll_row(poll: RecordedPoll, answer: Answer) -> Row:
    counts = (answer.rows, sum(answer.skipped.values()), round(answer.elapsed_s * 1000), _reasons_text(answer.skipped))
    coverage = (int(poll.covers), poll.complete_to_microusd)
    return poll.provider, poll.lane, poll.gpu, poll.spot, poll.at_s, str(answer.completeness), *coverage, *counts


def _reasons_text(skipped: Mapping[str, int]) -> str | None:
    """Return the reasons for skipped rows as JSON, the most frequent first; None: no row was skipped."""
    if not skipped:
        return None
    most = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))[:_MAX_REASONS]
    return json.dumps({clean(reason, _REASON_LENGTH): rows for reason, rows in most})


class _ChangeWriter:
    """Writes one poll's changes."""

    def __init__(self, executor: Executor, prices: OpenPrices, poll: RecordedPoll) -> None:
        self._executor = executor
        self._prices = prices
        self._poll = poll

    def write(self, changes: AnswerChanges) -> list[OpenPrice]:
        """Write all rows; return the open price of each of `changes.new_prices`."""
        places = self._places([change.offer for change in changes.new_prices] + [offer for _, offer in changes.facts])
        open_prices = self._build_open_prices(changes.new_prices, places)
        self._close(changes)
        new_intervals = [
            open_price
            for change, open_price in zip(changes.new_prices, open_prices, strict=True)
            if self._opens(change)
        ]
        self._executor.run_many(
            _OPEN,
            [
                (open_price.series_id, open_price.seen_from_s, open_price.machine_microusd, open_price.disk_microusd)
                for open_price in new_intervals
            ],
        )
        self._executor.run_many(
            _CORRECT,
            [
                (open_price.machine_microusd, open_price.disk_microusd, open_price.series_id, open_price.seen_from_s)
                for change, open_price in zip(changes.new_prices, open_prices, strict=True)
                if not self._opens(change)
            ],
        )
        self._facts(changes, open_prices, places)
        self._executor.run_many(_GONE, [(price.series_id,) for price in changes.delisted])
        return open_prices

    def _opens(self, change: PriceChange) -> bool:
        """End an interval; False: it began in the same second, so it is corrected instead."""
        return change.previous is None or change.previous.seen_from_s < self._poll.at_s

    def _close(self, changes: AnswerChanges) -> None:
        ended = [
            *changes.delisted,
            *(change.previous for change in changes.new_prices if change.previous is not None and self._opens(change)),
        ]
        self._executor.run_many(
            _CLOSE,
            [(self._last_seen(open_price), open_price.series_id, open_price.seen_from_s) for open_price in ended],
        )

    def _last_seen(self, open_price: OpenPrice) -> int:
        # everything that ends here has the poll's rental type, or belongs to the same provider
        provider_prices = self._prices.prices_of(self._poll.provider, self._poll.spot)
        return max(open_price.seen_from_s, provider_prices.newest_cover(open_price.gpu))

    def _build_open_prices(
        self, price_changes: Sequence[PriceChange], places: dict[tuple[str, str], int]
    ) -> list[OpenPrice]:
        segments = self._segments(change.offer for change in price_changes)
        pairs = [
            (segments[_segment_key(change.offer)], change.machine_id)
            for change in price_changes
            if change.previous is None
        ]
        known_ids = dict(self._known_series(pairs))
        new_rows: list[Row] = []
        open_prices: list[OpenPrice] = []
        for change in price_changes:
            segment_id = segments[_segment_key(change.offer)]
            series_id = (
                change.previous.series_id
                if change.previous is not None
                else known_ids.get((segment_id, change.machine_id))
            )
            facts = 0
            if series_id is None:
                series_id, self._prices.next_series_id = self._prices.next_series_id, self._prices.next_series_id + 1
                new_rows.append((series_id, segment_id, change.machine_id, *_facts_row(change.offer, places)))
                facts = facts_hash(change.offer)
            open_prices.append(self._open_price(change, series_id, segment_id, facts))
        self._executor.run_many(_SERIES, new_rows)
        return open_prices

    def _open_price(self, change: PriceChange, series_id: int, segment_id: int, facts: int) -> OpenPrice:
        open_price = OpenPrice(
            series_id,
            segment_id,
            clean(change.offer.gpu, 200),
            (change.machine_id, change.offer.gpu_count),
            self._poll.at_s if change.previous is None else max(self._poll.at_s, change.previous.seen_from_s),
            change.machine_microusd,
            change.disk_microusd,
            verification=change.offer.verification,
            facts=facts,
        )
        save_quote(open_price, change.offer)
        return open_price

    def _facts(self, changes: AnswerChanges, open_prices: list[OpenPrice], places: dict[tuple[str, str], int]) -> None:
        """Write the facts of machines that differ from their rows."""
        rows = [(*_facts_row(offer, places), open_price.series_id) for open_price, offer in changes.facts]
        for change, new_price in zip(changes.new_prices, open_prices, strict=True):
            facts = facts_hash(change.offer)
            if new_price.facts != facts:
                if change.previous is None or change.previous.facts != facts:
                    rows.append((*_facts_row(change.offer, places), new_price.series_id))
                new_price.facts = facts
        self._executor.run_many(_FACTS, rows)

    def _known_series(self, pairs: list[tuple[int, str]]) -> Iterator[tuple[tuple[int, str], int]]:
        for start in range(0, len(pairs), _PAIRS_PER_QUERY):
            chunk = pairs[start : start + _PAIRS_PER_QUERY]
            values = ", ".join(["(?, ?)"] * len(chunk))
            sql = f"{_SERIES_OF} (VALUES {values})"
            for segment_id, machine_id, series_id in self._executor.rows(sql, tuple(x for pair in chunk for x in pair)):
                yield (segment_id, machine_id), series_id

    def _segments(self, offers: Iterable[Offer]) -> dict[tuple[str, str, int, int], int]:
        ids = self._prices.segments
        new_rows: list[Row] = []
        for offer in offers:
            key = _segment_key(offer)
            if key not in ids:
                ids[key] = 1 + max(ids.values(), default=0)
                new_rows.append((ids[key], *key, clean(offer.gpu_family, 200), offer.gpu_memory_gib))
        self._executor.run_many(_SEGMENT, new_rows)
        return ids

    def _places(self, offers: Iterable[Offer]) -> dict[tuple[str, str], int]:
        ids = self._prices.places
        new_rows: list[Row] = []
        for offer in offers:
            key = _place_key(offer)
            if key not in ids:
                ids[key] = 1 + max(ids.values(), default=0)
                new_rows.append((ids[key], *key))
        self._executor.run_many(_PLACE, new_rows)
        return ids


def _segment_key(offer: Offer) -> tuple[str, str, int, int]:
    return clean(offer.provider, 32), clean(offer.gpu, 200), offer.gpu_count, int(offer.spot)


def _place_key(offer: Offer) -> tuple[str, str]:
    return clean(offer.region or "", 200), clean(offer.country or "", 2)


def _facts_row(offer: Offer, places: dict[tuple[str, str], int]) -> Row:
    return clean(offer.offer_id, 64), places[_place_key(offer)], *fact_cells(offer)


def _ended_interval(open_price: OpenPrice, at_s: int) -> EndedInterval:
    return EndedInterval(
        open_price.segment_id,
        open_price.series_id,
        open_price.seen_from_s,
        at_s,
        open_price.machine_microusd,
        open_price.disk_microusd,
    )
