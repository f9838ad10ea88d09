"""Joins observations and polls with those that the store holds of the same source: what stood there is taken apart into
observations around the new ones, and put together again. So it does not matter which came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import msgspec

from gpuwatch.domain.analysis.offer_intervals import CompletePoll, PollTimeline, PriceRun, price_runs
from gpuwatch.storage.executor import Executor, Row
from gpuwatch.storage.import_batches import ImportBatch, ImportIds, MachineKey, MarketPart, ObservedPrices
from gpuwatch.storage.open_prices import OpenPrices

_FIRST, _LAST = 0, 2**31 - 1
_POLLS = """SELECT at_s, complete_to_microusd FROM poll
 WHERE covers = 1 AND provider = ? AND gpu = ? AND spot = ? AND at_s >= ? AND at_s <= ?"""
_BEFORE = """SELECT max(at_s) FROM poll WHERE covers = 1 AND provider = ? AND gpu = ? AND spot = ? AND at_s < ?
 AND complete_to_microusd IS NULL"""
_AFTER = """SELECT min(at_s) FROM poll WHERE covers = 1 AND provider = ? AND gpu = ? AND spot = ? AND at_s > ?
 AND complete_to_microusd IS NULL"""
_RUNS = """SELECT s.id, s.machine_id, p.seen_from_s, p.seen_to_s, p.machine_microusd_hour
 FROM price_interval p JOIN series s ON s.id = p.series_id
 WHERE s.segment_id = ? AND p.seen_from_s <= ? AND p.seen_to_s >= ? ORDER BY s.id, p.seen_from_s"""
_DROP = "DELETE FROM price_interval WHERE series_id = ? AND seen_from_s = ?"
_ADD = "INSERT INTO price_interval (series_id, seen_from_s, seen_to_s, machine_microusd_hour) VALUES (?, ?, ?, ?)"
_ADD_POLL = """INSERT INTO poll (provider, lane, gpu, spot, at_s, completeness, covers, complete_to_microusd, rows,
 skipped, elapsed_ms) VALUES (?, 'import', ?, ?, ?, ?, 1, ?, ?, 0, 0)"""


class MergeCounts(msgspec.Struct):
    """What was new."""

    new: int = 0
    known: int = 0
    twice: int = 0
    polls: int = 0
    changed_s: set[int] = msgspec.field(default_factory=set)  # moments of which something new was said

    def __add__(self, other: MergeCounts) -> MergeCounts:
        return MergeCounts(
            self.new + other.new,
            self.known + other.known,
            self.twice + other.twice,
            self.polls + other.polls,
            self.changed_s | other.changed_s,
        )


def merge(executor: Executor, ids: OpenPrices, batch: ImportBatch, *, dry_run: bool) -> MergeCounts:
    """Write what is new in a batch; `ids` gets the names and numbers that are made for it."""
    fresh = {part: _new_polls(executor, batch.name, part, polls) for part, polls in batch.polls.items()}
    total = MergeCounts(twice=batch.twice, polls=len({poll.at_s for polls in fresh.values() for poll in polls}))
    names = ImportIds(executor, ids, batch)
    for part in _parts(ids, batch, fresh):
        total += _PartMerge(executor, names, batch, part, _polls_about(fresh, part)).merge(dry_run=dry_run)
    for (gpu, spot), polls in fresh.items():
        total.changed_s.update(poll.at_s for poll in polls)
        if not dry_run:
            executor.run_many(
                _ADD_POLL, [_poll_row(batch, gpu, spot, poll) for poll in sorted(polls, key=lambda one: one.at_s)]
            )
    return total


def _poll_row(batch: ImportBatch, gpu: str, spot: bool, poll: CompletePoll) -> Row:
    word = "complete" if poll.to_microusd is None else "truncated"
    return batch.name, gpu, int(spot), poll.at_s, word, poll.to_microusd, batch.seen_at(poll.at_s, gpu, spot)


def _new_polls(executor: Executor, name: str, part: MarketPart, polls: set[CompletePoll]) -> set[CompletePoll]:
    times = [poll.at_s for poll in polls]
    return polls - _stored_polls(executor, name, part, min(times), max(times))


def _stored_polls(executor: Executor, name: str, part: MarketPart, from_s: int, to_s: int) -> set[CompletePoll]:
    gpu, spot = part
    return {CompletePoll(*row) for row in executor.rows(_POLLS, (name, gpu, int(spot), from_s, to_s))}


def _polls_about(polls: Mapping[MarketPart, set[CompletePoll]], part: MarketPart) -> set[CompletePoll]:
    """A poll of all GPUs covers each of them."""
    return polls.get(part, set()) | polls.get(("", part[1]), set())


def _parts(ids: OpenPrices, batch: ImportBatch, fresh: Mapping[MarketPart, set[CompletePoll]]) -> Iterable[MarketPart]:
    found = dict.fromkeys(batch.observations)
    found |= dict.fromkeys(part for part, polls in fresh.items() if polls and part[0])
    for name, gpu, _, spot in ids.segments:
        if name == batch.name and fresh.get(("", bool(spot))):
            found[(gpu, bool(spot))] = None
    return found


class _PartMerge:
    """One GPU and rental type of one source."""

    def __init__(
        self, executor: Executor, names: ImportIds, batch: ImportBatch, part: MarketPart, fresh: set[CompletePoll]
    ) -> None:
        self._executor = executor
        self._names = names
        self._batch = batch
        self._part = part
        self._fresh = fresh
        self._new = batch.observations.get(part, {})
        times = [at_s for seen in self._new.values() for at_s in (min(seen), max(seen))]
        times += [poll.at_s for poll in fresh]
        self._from_s, self._to_s = self._window(min(times, default=_LAST), max(times, default=_FIRST))
        stored = self._stored()
        self._stored_s = {poll.at_s for poll in stored}
        self._fresh_s = {poll.at_s for poll in fresh}
        self._old_looks = PollTimeline(stored)
        self._looks = PollTimeline(stored | fresh)

    def merge(self, *, dry_run: bool) -> MergeCounts:
        """Write what changes; answers what is new."""
        merged = MergeCounts()
        numbers, old = self._old_runs()
        dropped: list[Row] = []
        added: list[tuple[MachineKey, PriceRun]] = []
        for key in dict.fromkeys((*self._new, *(old if self._fresh else ()))):
            mine, seen = old.get(key, []), self._new.get(key, {})
            self._count(merged, mine, seen)
            made = price_runs(sorted(self._points(mine, seen).items()), self._looks)
            dropped += [(numbers[key], run.from_s) for run in mine if run not in made]
            added += [(key, run) for run in made if run not in mine]
        if not dry_run:
            numbers |= self._names.series(self._part, self._new)
            self._executor.run_many(_DROP, dropped)
            self._executor.run_many(_ADD, [(numbers[key], *run) for key, run in added])
        return merged

    def _count(self, merged: MergeCounts, old: Sequence[PriceRun], seen: ObservedPrices) -> None:
        for at_s, microusd in seen.items():
            stands = any(run.from_s <= at_s <= run.seen_s and run.microusd <= microusd for run in old)
            if stands and (at_s in self._stored_s or at_s not in self._fresh_s):
                merged.known += 1
            else:
                merged.new += 1
                merged.changed_s.add(at_s)

    def _points(self, old: Sequence[PriceRun], seen: ObservedPrices) -> ObservedPrices:
        points: ObservedPrices = {}
        for run in old:
            points |= dict.fromkeys(
                (run.from_s, *self._old_looks.within(run.from_s, run.seen_s), run.seen_s), run.microusd
            )
        for at_s, microusd in seen.items():
            points[at_s] = min(microusd, points.get(at_s, microusd))
        return points

    def _window(self, first_s: int, last_s: int) -> tuple[int, int]:
        """From the last poll before to the first one after: new rows do not affect what lies beyond."""
        before, after = _FIRST, _LAST
        for gpu in (self._part[0], ""):
            scope = (self._batch.name, gpu, int(self._part[1]))
            before = max(before, self._executor.rows(_BEFORE, (*scope, first_s))[0][0] or _FIRST)
            after = min(after, self._executor.rows(_AFTER, (*scope, last_s))[0][0] or _LAST)
        return before, after

    def _stored(self) -> set[CompletePoll]:
        gpu, spot = self._part
        wanted = (self._from_s, self._to_s)
        return {
            poll
            for name in (gpu, "")
            for poll in _stored_polls(self._executor, self._batch.name, (name, spot), *wanted)
        }

    def _old_runs(self) -> tuple[dict[MachineKey, int], dict[MachineKey, list[PriceRun]]]:
        numbers: dict[MachineKey, int] = {}
        found: dict[MachineKey, list[PriceRun]] = {}
        for gpu_count, segment in self._names.segments(self._part):
            rows = self._executor.rows(_RUNS, (segment, self._to_s, self._from_s))
            for (series, machine), group in groupby(rows, key=lambda row: (row[0], row[1])):
                numbers[(machine, gpu_count)] = series
                found[(machine, gpu_count)] = [PriceRun(*row[2:]) for row in group]
        return numbers, found
