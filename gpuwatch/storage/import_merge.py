"""Merges observations and polls with the stored ones of the same source: stored runs that overlap the new ones are
split into observations, and built again with them. So the order of imports does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from sqlalchemy import Connection

from gpuwatch.domain.analysis.market_history import CompletePoll
from gpuwatch.domain.analysis.poll_timeline import Flags, Ints, PollTimeline, PriceRuns, price_runs
from gpuwatch.domain.analysis.price_columns import StatedPolls, cheapest_at_once, keyed
from gpuwatch.storage.executor import Executor, Row, driver_executor
from gpuwatch.storage.import_batches import NO_OBSERVATIONS, ImportBatch, ImportIds, MachineKey, MarketPart
from gpuwatch.storage.open_prices import OpenPrices

_FIRST, _LAST = 0, 2**31 - 1
_NO_INTS = np.empty(0, np.int64)
_RUNS = """SELECT s.id, s.machine_id, p.seen_from_s, p.seen_to_s, p.machine_microusd_hour FROM price_interval p
 JOIN series s ON s.id = p.series_id WHERE s.segment_id = ? AND p.seen_from_s <= ? AND p.seen_to_s >= ?
 ORDER BY s.id, p.seen_from_s"""
_DELETE_RUN = "DELETE FROM price_interval WHERE series_id = ? AND seen_from_s = ?"
_INSERT_RUN = (
    """INSERT INTO price_interval (series_id, seen_from_s, seen_to_s, machine_microusd_hour) VALUES (?, ?, ?, ?)"""
)
_COVERING = " FROM poll WHERE covers = 1 AND provider = ? AND gpu IN (?, ?) AND spot = ?"
_STORED_POLLS = f"SELECT at_s, complete_to_microusd{_COVERING} AND at_s >= ? AND at_s <= ?"
_COMPLETE_BEFORE = f"SELECT max(at_s){_COVERING} AND complete_to_microusd IS NULL AND at_s < ?"
_COMPLETE_AFTER = f"SELECT min(at_s){_COVERING} AND complete_to_microusd IS NULL AND at_s > ?"
_INSERT_POLL = """INSERT INTO poll (provider, lane, gpu, spot, at_s, completeness, covers, complete_to_microusd, rows,
 skipped, elapsed_ms) VALUES (?, 'import', ?, ?, ?, ?, 1, ?, ?, 0, 0)"""


class MergeCounts(msgspec.Struct):
    """What was new."""

    new: int = 0
    known: int = 0
    duplicates: int = 0
    polls: int = 0
    changed_s: Ints = msgspec.field(default_factory=lambda: _NO_INTS)  # moments with new data

    def __add__(self, other: MergeCounts) -> MergeCounts:
        return MergeCounts(
            self.new + other.new,
            self.known + other.known,
            self.duplicates + other.duplicates,
            self.polls + other.polls,
            np.union1d(self.changed_s, other.changed_s),
        )


def merge(connection: Connection, ids: OpenPrices, batch: ImportBatch, *, dry_run: bool) -> MergeCounts:
    """Write what is new in a batch; adds the names and ids that it creates to `ids`."""
    executor = driver_executor(connection)
    new_polls = {part: _new_polls(executor, batch.name, part, polls) for part, polls in batch.polls.items()}
    times = [_NO_INTS, *(_times(polls) for polls in new_polls.values())]
    total = MergeCounts(duplicates=batch.duplicates, polls=len(np.unique(np.concatenate(times))))
    import_ids = ImportIds(connection, ids, batch)
    for part in _parts(ids, batch, new_polls):
        total += _PartMerge(executor, import_ids, batch, part, _polls_covering(new_polls, part)).merge(dry_run=dry_run)
    for part, polls in new_polls.items():
        total.changed_s = np.union1d(total.changed_s, _times(polls))
        if not dry_run:
            executor.run_many(_INSERT_POLL, list(_poll_rows(batch, part, polls)))
    return total


def _times(polls: StatedPolls) -> Ints:
    return np.union1d(polls.complete_s, np.array([poll.at_s for poll in polls.bounded], np.int64))


def _poll_rows(batch: ImportBatch, part: MarketPart, polls: StatedPolls) -> Iterator[Row]:
    gpu, spot = part
    bounded = sorted((poll.at_s, poll.to_microusd or 0) for poll in polls.bounded)
    at_s = np.concatenate([polls.complete_s, np.array([moment for moment, _ in bounded], np.int64)])
    bounds = [None] * len(polls.complete_s) + [bound for _, bound in bounded]
    for moment, bound, offer_count in zip(
        at_s.tolist(), bounds, batch.offer_counts(at_s, gpu, spot).tolist(), strict=True
    ):
        completeness = "complete" if bound is None else "truncated"
        yield batch.name, gpu, int(spot), moment, completeness, bound, offer_count


def _new_polls(executor: Executor, name: str, part: MarketPart, polls: StatedPolls) -> StatedPolls:
    times = _times(polls)
    if not len(times):
        return polls
    scope = (name, part[0], part[0], int(part[1]))
    stored = _stored_polls(executor, scope, int(times[0]), int(times[-1]))
    return StatedPolls(np.setdiff1d(polls.complete_s, stored.complete_s), polls.bounded - stored.bounded)


def _stored_polls(executor: Executor, scope: Row, from_s: int, to_s: int) -> StatedPolls:
    rows = executor.rows(_STORED_POLLS, (*scope, from_s, to_s))
    complete = np.array([at_s for at_s, bound in rows if bound is None], np.int64)
    return StatedPolls(np.unique(complete), {CompletePoll(at_s, bound) for at_s, bound in rows if bound is not None})


def _polls_covering(polls: Mapping[MarketPart, StatedPolls], part: MarketPart) -> StatedPolls:
    """Return the polls about a part; a poll of all GPUs covers each of them."""
    merged = StatedPolls()
    for scope in (part, ("", part[1])):
        if scope in polls:
            merged.add(polls[scope].complete_s, polls[scope].bounded)
    return merged


def _parts(ids: OpenPrices, batch: ImportBatch, new_polls: Mapping[MarketPart, StatedPolls]) -> Iterable[MarketPart]:
    parts = dict.fromkeys(batch.observations)
    with_new_polls = {part for part, polls in new_polls.items() if len(_times(polls))}
    parts |= dict.fromkeys(part for part in new_polls if part in with_new_polls and part[0])
    for name, gpu, _, spot in ids.segments:
        if name == batch.name and ("", bool(spot)) in with_new_polls:
            parts[(gpu, bool(spot))] = None
    return parts


class _StoredRuns(NamedTuple):
    """The stored runs: their machines as indexes into `keys`, and the ids of their series."""

    keys: list[MachineKey]
    numbers: Ints  # ids of series; below 0: none yet
    runs: PriceRuns


class _PartMerge:
    """Merges one GPU and rental type of one source."""

    def __init__(
        self, executor: Executor, names: ImportIds, batch: ImportBatch, part: MarketPart, new_polls: StatedPolls
    ) -> None:
        self._executor = executor
        self._names = names
        self._part = part
        self._observations = batch.observations.get(part, NO_OBSERVATIONS)
        self._scope: Row = (batch.name, part[0], "", int(part[1]))  # its own polls, and those of all GPUs
        self._new_polls_s = _times(new_polls)
        times = np.concatenate([self._observations.at_s, self._new_polls_s])
        self._from_s, self._to_s = self._window(int(times.min(initial=_LAST)), int(times.max(initial=_FIRST)))
        stored = _stored_polls(executor, self._scope, self._from_s, self._to_s)
        self._old_polls = PollTimeline(stored.complete_s, stored.bounded)
        stored.add(new_polls.complete_s, new_polls.bounded)
        self._polls = PollTimeline(stored.complete_s, stored.bounded)

    def merge(self, *, dry_run: bool) -> MergeCounts:
        """Write the changes; return the counts."""
        stored = self._stored()
        is_known, changed_s = self._is_known(stored.runs)
        counts = MergeCounts(new=int((~is_known).sum()), known=int(is_known.sum()), changed_s=changed_s)
        if counts.new or len(self._new_polls_s):
            runs = self._rebuild_runs(stored, is_known)
            if not dry_run:
                self._write(stored, runs)
        elif not dry_run:
            self._names.series(self._part, self._observations.keys)  # their facts may be newer
        return counts

    def _stored(self) -> _StoredRuns:
        """Return the runs in the window; the machines of the new observations come first among the keys."""
        keys = {key: place for place, key in enumerate(self._observations.keys)}
        numbers: dict[int, int] = {}
        columns: list[tuple[int, int, int, int]] = []
        for gpu_count, segment in self._names.segments(self._part):
            for number, machine, *run in self._executor.rows(_RUNS, (segment, self._to_s, self._from_s)):
                place = keys.setdefault((machine, gpu_count), len(keys))
                numbers[place] = number
                columns.append((place, *run))
        table = np.array(columns, np.int64).reshape(-1, 4)
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        series_ids = np.array([numbers.get(place, -1) for place in range(len(keys))], np.int64)
        return _StoredRuns(list(keys), series_ids, PriceRuns(*table.T))

    def _is_known(self, old: PriceRuns) -> tuple[Flags, Ints]:
        """Return which new observations the store already shows, and the times of the others."""
        machine, at_s, microusd = self._observations.machine, self._observations.at_s, self._observations.microusd
        position = np.searchsorted(keyed(old.offer, old.from_s), keyed(machine, at_s), "right") - 1
        is_known = position >= 0
        position = position[is_known]
        is_known[is_known] = (
            (old.offer[position] == machine[is_known])
            & (at_s[is_known] <= old.seen_s[position])
            & (old.microusd[position] <= microusd[is_known])
            & (np.isin(at_s[is_known], self._old_polls.times) | ~np.isin(at_s[is_known], self._new_polls_s))
        )
        return is_known, np.unique(at_s[~is_known])

    def _rebuild_runs(self, stored: _StoredRuns, is_known: Flags) -> PriceRuns:
        """Return the runs of the new and the stored observations."""
        old = stored.runs
        low = np.searchsorted(self._old_polls.times, old.from_s, "left")
        poll_counts = np.searchsorted(self._old_polls.times, old.seen_s, "right") - low
        poll_index = np.repeat(low - np.cumsum(poll_counts) + poll_counts, poll_counts) + np.arange(poll_counts.sum())
        run_index = np.repeat(np.arange(len(old.offer)), poll_counts)
        run = np.concatenate([run_index, np.arange(len(old.offer)), np.arange(len(old.offer))])
        at_s = np.concatenate([self._old_polls.times[poll_index], old.from_s, old.seen_s])
        observed = cheapest_at_once(
            np.concatenate([old.offer[run], self._observations.machine]),
            np.concatenate([at_s, self._observations.at_s]),
            np.concatenate([old.microusd[run], self._observations.microusd]),
        )
        return price_runs(*observed, self._polls)

    def _write(self, stored: _StoredRuns, runs: PriceRuns) -> None:
        old, numbers = stored.runs, stored.numbers
        series_ids = self._names.series(self._part, self._observations.keys)
        numbers[: len(self._observations.keys)] = [series_ids[key] for key in self._observations.keys]
        is_dropped, is_added = _missing_from(old, runs), _missing_from(runs, old)
        dropped_keys = zip(numbers[old.offer[is_dropped]].tolist(), old.from_s[is_dropped].tolist(), strict=True)
        self._executor.run_many(_DELETE_RUN, list(dropped_keys))
        columns = (numbers[runs.offer], runs.from_s, runs.seen_s, runs.microusd)
        self._executor.run_many(_INSERT_RUN, list(zip(*(column[is_added].tolist() for column in columns), strict=True)))

    def _window(self, first_s: int, last_s: int) -> tuple[int, int]:
        """Return the last poll before and the first one after the new rows: these affect nothing outside."""
        before = self._executor.rows(_COMPLETE_BEFORE, (*self._scope, first_s))[0][0]
        after = self._executor.rows(_COMPLETE_AFTER, (*self._scope, last_s))[0][0]
        return before or _FIRST, after or _LAST


def _missing_from(runs: PriceRuns, others: PriceRuns) -> Flags:
    """Return which runs are not among the others; an offer has one run that begins at a time."""
    keys = keyed(others.offer, others.from_s)
    position = np.searchsorted(keys, keyed(runs.offer, runs.from_s))
    missing = np.ones(len(runs.offer), bool)
    inside = np.flatnonzero(position < len(keys))
    position = position[inside]
    missing[inside] = (
        (others.offer[position] != runs.offer[inside])
        | (others.from_s[position] != runs.from_s[inside])
        | (others.seen_s[position] != runs.seen_s[inside])
        | (others.microusd[position] != runs.microusd[inside])
    )
    return missing
