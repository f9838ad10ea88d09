"""Writes the changes of a poll.

The order within a transaction: read the state, compare, write. `apply_to_memory` updates the cache after the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, tuple_, update

from gpuwatch.domain.market.money import microusd
from gpuwatch.domain.market.offer import Offer, storable_text
from gpuwatch.domain.setup.durations import DAY_S, HOUR_S
from gpuwatch.ports import Answer
from gpuwatch.storage.history.recording.answer_changes import (
    AnswerChanges,
    PriceChange,
    RecordedPoll,
    covers,
    find_changes,
    save_quote,
)
from gpuwatch.storage.history.recording.late_rows import note_late
from gpuwatch.storage.history.recording.open_prices import NEVER, OpenPrice, OpenPrices
from gpuwatch.storage.history.recording.poll_writer import write_polls
from gpuwatch.storage.setup.machine_facts import fact_cells, facts_hash
from gpuwatch.storage.setup.stored_values import execute_many
from gpuwatch.storage.setup.tables import history_state, place, price_interval, quota_day, segment, series

_MAX_REASONS = 12  # for skipped rows, of one poll
_REASON_LENGTH = 120
_PAIRS_PER_QUERY = 400  # pairs in one query: SQLite allows 32,766 parameters, older versions 999

Values = dict[str, Any]

# Parameters with the name of a column set it; the others select the row.
_CHANGE_SERIES = update(series).where(series.c.id == bindparam("of_series"))
_CHANGE_INTERVAL = update(price_interval).where(
    price_interval.c.series_id == bindparam("of_series"), price_interval.c.seen_from_s == bindparam("from_s")
)
_ADD_TO_QUOTA = (
    update(quota_day)
    .where(quota_day.c.provider == bindparam("of_provider"), quota_day.c.day == bindparam("of_day"))
    .values(rows=quota_day.c.rows + bindparam("more"))
)
_SERIES_OF = select(series.c.segment_id, series.c.machine_id, series.c.id).where(
    tuple_(series.c.segment_id, series.c.machine_id).in_(bindparam("pairs", expanding=True))
)


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
    connection: Connection, prices: OpenPrices, answer: Answer, lane: str, gpu: str, spot: bool
) -> WrittenPoll:
    """Write an answer: the poll, the quota, and the changes. `prices` must match the database."""
    recorded = _recorded_poll(prices, answer, lane, storable_text(gpu, 200), int(spot))
    changes = find_changes(answer, recorded, prices)
    write_polls(connection, [_poll_row(recorded, answer)], prices.packed_to)
    if answer.rows > 0:
        _add_to_quota(connection, recorded.provider, utc_day(answer.observed_at), answer.rows)
    open_prices = _ChangeWriter(connection, prices, recorded).write(changes)
    state: dict[str, int] = {}
    hour = recorded.at_s // HOUR_S
    if prices.next_hour is None or hour < prices.next_hour:  # the first poll, or a late one: aggregate again
        state["next_hour"] = prices.next_hour = hour
        connection.execute(update(history_state).values(rewritten=history_state.c.rewritten + 1))
        note_late(connection, recorded.provider, recorded.at_s)
    version = prices.version
    if changes.new_prices or changes.delisted or recorded.covers:
        state["version"] = version = version + 1
    if state:
        connection.execute(update(history_state), state)
    return WrittenPoll(recorded, changes, open_prices, version)


def utc_day(moment: datetime) -> int:
    """Return the days since 1970, UTC: the marketplace limits rows per day."""
    return int(moment.timestamp()) // DAY_S


def apply_to_memory(written: WrittenPoll, prices: OpenPrices) -> list[EndedInterval]:
    """Update the cache to what was committed; return the intervals that ended."""
    recorded, changes = written.poll, written.changes
    prices.version = written.version
    ended = [_ended_interval(open_price, recorded.at_s) for open_price in changes.delisted]
    polled_prices = prices.prices_of(recorded.provider, recorded.spot)
    for open_price in changes.delisted:
        polled_prices.remove(open_price)
    for change, open_price in zip(changes.new_prices, written.open_prices, strict=True):
        provider_prices = prices.prices_of(recorded.provider, int(change.offer.spot))
        if change.previous is not None and open_price.seen_from_s > change.previous.seen_from_s:
            ended.append(_ended_interval(change.previous, recorded.at_s))
        open_price.mark = prices.polls
        provider_prices.add(open_price)
        provider_prices.mark_changed(open_price.gpu, recorded.at_s)
    for open_price, offer in changes.facts:
        open_price.keep_facts_of(offer)
        open_price.facts = facts_hash(offer)
    if recorded.covers:
        polled_prices.covered_s[recorded.gpu] = recorded.at_s
    return ended


def seconds_since_1970(moment: datetime) -> int:
    """Return whole seconds since 1970."""
    return int(moment.timestamp())


def _recorded_poll(prices: OpenPrices, answer: Answer, lane: str, gpu: str, spot: int) -> RecordedPoll:
    """Return the poll with its time in the history: a sweep is at least a second later than everything it covers."""
    is_covering = covers(answer, lane)
    provider_prices = prices.prices_of(answer.provider, spot)
    at_s = seconds_since_1970(answer.observed_at)
    if is_covering:
        at_s = max(at_s, provider_prices.newest_change(gpu) + 1)
    else:
        gpus = {offer.gpu for offer in answer.offers}
        at_s = max(at_s, max((provider_prices.newest_change(name) for name in gpus), default=NEVER))
    complete_to = answer.complete_to_usd_hour if is_covering and answer.complete_to_usd_hour is not None else None
    bound = None if complete_to is None or answer.completeness == "complete" else microusd(repr(complete_to))
    return RecordedPoll(answer.provider, lane, gpu, spot, at_s, is_covering, bound)


def _poll_row(recorded: RecordedPoll, answer: Answer) -> dict[str, Any]:
    return {
        **recorded._asdict(),
        "covers": int(recorded.covers),
        "completeness": str(answer.completeness),
        "rows": answer.rows,
        "skipped": sum(answer.skipped.values()),
        "elapsed_ms": round(answer.elapsed_s * 1000),
        "not_understood": _reasons_text(answer.skipped),
    }


def _add_to_quota(connection: Connection, provider: str, day: int, rows: int) -> None:
    parameters = {"of_provider": provider, "of_day": day, "more": rows}
    if not connection.execute(_ADD_TO_QUOTA, parameters).rowcount:  # the first rows of the day
        connection.execute(insert(quota_day), {"provider": provider, "day": day, "rows": rows})


def _reasons_text(skipped: Mapping[str, int]) -> str | None:
    """Return the reasons for skipped rows as JSON, the most frequent first; None: no row was skipped."""
    if not skipped:
        return None
    most = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))[:_MAX_REASONS]
    return json.dumps({storable_text(reason, _REASON_LENGTH): rows for reason, rows in most})


class _ChangeWriter:
    """Writes one poll's changes."""

    def __init__(self, connection: Connection, prices: OpenPrices, recorded: RecordedPoll) -> None:
        self._connection = connection
        self._prices = prices
        self._poll = recorded

    def write(self, changes: AnswerChanges) -> list[OpenPrice]:
        """Write all rows; return the open price of each of `changes.new_prices`."""
        places = self._places([change.offer for change in changes.new_prices] + [offer for _, offer in changes.facts])
        open_prices = self._build_open_prices(changes.new_prices, places)
        self._close(changes)
        opened: list[Values] = []
        corrected: list[Values] = []
        for change, open_price in zip(changes.new_prices, open_prices, strict=True):
            price = {
                "machine_microusd_hour": open_price.machine_microusd,
                "disk_microusd_gb_month": open_price.disk_microusd,
            }
            if self._opens(change):
                opened.append({"series_id": open_price.series_id, "seen_from_s": open_price.seen_from_s, **price})
            else:
                corrected.append({**_key_of(open_price), **price})
        execute_many(self._connection, insert(price_interval), opened)
        execute_many(self._connection, _CHANGE_INTERVAL, corrected)
        self._facts(changes, open_prices, places)
        gone = [{"of_series": open_price.series_id, "on_offer": 0} for open_price in changes.delisted]
        execute_many(self._connection, _CHANGE_SERIES, gone)
        return open_prices

    def _opens(self, change: PriceChange) -> bool:
        """End an interval; False: it began in the same second, so it is corrected instead."""
        return change.previous is None or change.previous.seen_from_s < self._poll.at_s

    def _close(self, changes: AnswerChanges) -> None:
        ended = [
            *changes.delisted,
            *(change.previous for change in changes.new_prices if change.previous is not None and self._opens(change)),
        ]
        rows = [
            {**_key_of(open_price), "seen_to_s": self._last_seen(open_price), "ended_s": self._poll.at_s}
            for open_price in ended
        ]
        execute_many(self._connection, _CHANGE_INTERVAL, rows)

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
        new_rows: list[Values] = []
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
                identity = {"id": series_id, "segment_id": segment_id, "machine_id": change.machine_id}
                new_rows.append({**identity, **_facts_row(change.offer, places)})
                facts = facts_hash(change.offer)
            open_prices.append(self._open_price(change, series_id, segment_id, facts))
        execute_many(self._connection, insert(series), new_rows)
        return open_prices

    def _open_price(self, change: PriceChange, series_id: int, segment_id: int, facts: int) -> OpenPrice:
        open_price = OpenPrice(
            series_id,
            segment_id,
            storable_text(change.offer.gpu, 200),
            (change.machine_id, change.offer.gpu_count),
            self._poll.at_s if change.previous is None else max(self._poll.at_s, change.previous.seen_from_s),
            change.machine_microusd,
            change.disk_microusd,
            facts=facts,
        )
        open_price.keep_facts_of(change.offer)
        save_quote(open_price, change.offer)
        return open_price

    def _facts(self, changes: AnswerChanges, open_prices: list[OpenPrice], places: dict[tuple[str, str], int]) -> None:
        """Write the facts of machines that differ from their rows."""
        rows = [_facts_change(open_price, offer, places) for open_price, offer in changes.facts]
        for change, new_price in zip(changes.new_prices, open_prices, strict=True):
            facts = facts_hash(change.offer)
            if new_price.facts != facts:
                if change.previous is None or change.previous.facts != facts:
                    rows.append(_facts_change(new_price, change.offer, places))
                new_price.facts = facts
        execute_many(self._connection, _CHANGE_SERIES, rows)

    def _known_series(self, pairs: list[tuple[int, str]]) -> Iterator[tuple[tuple[int, str], int]]:
        for start in range(0, len(pairs), _PAIRS_PER_QUERY):
            chunk = pairs[start : start + _PAIRS_PER_QUERY]
            for segment_id, machine_id, series_id in self._connection.execute(_SERIES_OF, {"pairs": chunk}):
                yield (segment_id, machine_id), series_id

    def _segments(self, offers: Iterable[Offer]) -> dict[tuple[str, str, int, int], int]:
        ids = self._prices.segments
        new_rows: list[Values] = []
        for offer in offers:
            key = _segment_key(offer)
            if key not in ids:
                ids[key] = 1 + max(ids.values(), default=0)
                family = {"gpu_family": storable_text(offer.gpu_family, 200), "gpu_memory_gib": offer.gpu_memory_gib}
                row = dict(zip(("provider", "gpu", "gpu_count", "spot"), key, strict=True))
                new_rows.append({"id": ids[key], **row, **family})
        execute_many(self._connection, insert(segment), new_rows)
        return ids

    def _places(self, offers: Iterable[Offer]) -> dict[tuple[str, str], int]:
        ids = self._prices.places
        new_rows: list[Values] = []
        for offer in offers:
            key = region, country = _place_key(offer)
            if key not in ids:
                ids[key] = 1 + max(ids.values(), default=0)
                new_rows.append({"id": ids[key], "region": region, "country": country})
        execute_many(self._connection, insert(place), new_rows)
        return ids


def _segment_key(offer: Offer) -> tuple[str, str, int, int]:
    return storable_text(offer.provider, 32), storable_text(offer.gpu, 200), offer.gpu_count, int(offer.spot)


def _place_key(offer: Offer) -> tuple[str, str]:
    return storable_text(offer.region or "", 200), storable_text(offer.country or "", 2)


def _key_of(open_price: OpenPrice) -> Values:
    return {"of_series": open_price.series_id, "from_s": open_price.seen_from_s}


def _facts_row(offer: Offer, places: dict[tuple[str, str], int]) -> Values:
    """The machine's facts in `series`, written when one of them or a price changes."""
    return {
        "on_offer": 1,
        "offer_id": storable_text(offer.offer_id, 64),
        "place_id": places[_place_key(offer)],
        **fact_cells(offer),
    }


def _facts_change(open_price: OpenPrice, offer: Offer, places: dict[tuple[str, str], int]) -> Values:
    return {"of_series": open_price.series_id, **_facts_row(offer, places)}


def _ended_interval(open_price: OpenPrice, at_s: int) -> EndedInterval:
    return EndedInterval(
        open_price.segment_id,
        open_price.series_id,
        open_price.seen_from_s,
        at_s,
        open_price.machine_microusd,
        open_price.disk_microusd,
    )
