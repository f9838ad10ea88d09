"""Merges observations and polls with the stored ones of the same source: stored runs that overlap the new ones are
split into observations, and built again with them. So the order of imports does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sqlalchemy import Connection, bindparam, delete, func, insert, select

from gpuwatch.domain.history.hourly_rollup import CoverScope
from gpuwatch.domain.history.market_history import CompletePoll
from gpuwatch.domain.history.poll_timeline import NEVER_S, Flags, Ints, PollTimeline, PriceRuns, price_runs
from gpuwatch.domain.history.price_columns import StatedPolls, cheapest_at_once, keyed
from gpuwatch.storage.history.imports.import_batches import (
    NO_OBSERVATIONS,
    ImportBatch,
    ImportIds,
    MachineKey,
    MarketPart,
)
from gpuwatch.storage.history.recording.open_prices import OpenPrices
from gpuwatch.storage.history.recording.poll_writer import write_polls
from gpuwatch.storage.history.recording.recorded_polls import complete_poll_after, complete_poll_before, read_polls
from gpuwatch.storage.setup.stored_values import execute_many
from gpuwatch.storage.setup.tables import price_interval, series

_FIRST, _LAST = 0, 2**31 - 1
_NO_INTS = np.empty(0, np.int64)
_RUNS = (
    select(
        series.c.id,
        series.c.machine_id,
        price_interval.c.seen_from_s,
        price_interval.c.seen_to_s,
        price_interval.c.machine_microusd_hour,
        func.coalesce(price_interval.c.ended_s, NEVER_S),
    )
    .join(price_interval, price_interval.c.series_id == series.c.id)
    .where(series.c.segment_id == bindparam("segment"))
    .where(price_interval.c.seen_from_s <= bindparam("to_s"), price_interval.c.seen_to_s >= bindparam("from_s"))
    .order_by(series.c.id, price_interval.c.seen_from_s)
)
_DELETE_RUN = delete(price_interval).where(
    price_interval.c.series_id == bindparam("series"), price_interval.c.seen_from_s == bindparam("from_s")
)


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


def merge_batch(connection: Connection, ids: OpenPrices, batch: ImportBatch, *, dry_run: bool) -> MergeCounts:
    """Write what is new in a batch; adds the names and ids that it creates to `ids`."""
    new_polls = {part: _new_polls(connection, batch.name, part, polls) for part, polls in batch.polls.items()}
    times = [_NO_INTS, *(_times(polls) for polls in new_polls.values())]
    total = MergeCounts(duplicates=batch.duplicates, polls=len(np.unique(np.concatenate(times))))
    import_ids = ImportIds(connection, ids, batch)
    for part in _parts(ids, batch, new_polls):
        covering = _polls_covering(new_polls, part)
        total += _PartMerge(connection, import_ids, batch, part, covering).merge(dry_run=dry_run)
    for part, polls in new_polls.items():
        total.changed_s = np.union1d(total.changed_s, _times(polls))
        if not dry_run:
            write_polls(connection, list(_poll_rows(batch, part, polls)), ids.packed_to)
    return total


def _times(polls: StatedPolls) -> Ints:
    return np.union1d(polls.complete_s, np.array([poll.at_s for poll in polls.bounded], np.int64))


def _poll_rows(batch: ImportBatch, part: MarketPart, polls: StatedPolls) -> Iterator[dict[str, Any]]:
    gpu, spot = part
    scope = {"provider": batch.name, "lane": "import", "gpu": gpu, "spot": int(spot), "covers": 1}
    bounded = sorted((poll.at_s, poll.to_microusd or 0) for poll in polls.bounded)
    at_s = np.concatenate([polls.complete_s, np.array([moment for moment, _ in bounded], np.int64)])
    bounds = [None] * len(polls.complete_s) + [bound for _, bound in bounded]
    for moment, bound, offer_count in zip(
        at_s.tolist(), bounds, batch.offer_counts(at_s, gpu, spot).tolist(), strict=True
    ):
        yield scope | {
            "at_s": moment,
            "completeness": "complete" if bound is None else "truncated",
            "complete_to_microusd": bound,
            "rows": offer_count,
            "skipped": 0,
            "elapsed_ms": 0,
        }


def _new_polls(connection: Connection, name: str, part: MarketPart, polls: StatedPolls) -> StatedPolls:
    times = _times(polls)
    if not len(times):
        return polls
    stored = _stored_polls(connection, [(name, part[0], int(part[1]))], int(times[0]), int(times[-1]))
    return StatedPolls(np.setdiff1d(polls.complete_s, stored.complete_s), polls.bounded - stored.bounded)


def _stored_polls(connection: Connection, scopes: Iterable[CoverScope], from_s: int, to_s: int) -> StatedPolls:
    stored = StatedPolls()
    for polls in read_polls(connection, scopes, from_s, to_s + 1, covering=True).values():
        at_s, bounds = np.frombuffer(polls.at_s, np.int64), np.frombuffer(polls.bounds, np.int64)
        bounded = bounds >= 0
        pairs = zip(at_s[bounded].tolist(), bounds[bounded].tolist(), strict=True)
        stored.add(at_s[~bounded], {CompletePoll(*pair) for pair in pairs})
    return stored


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
        self, connection: Connection, names: ImportIds, batch: ImportBatch, part: MarketPart, new_polls: StatedPolls
    ) -> None:
        self._connection = connection
        self._names = names
        self._part = part
        self._observations = batch.observations.get(part, NO_OBSERVATIONS)
        # its own polls, and those of all GPUs
        self._scopes = {(batch.name, gpu, int(part[1])) for gpu in (part[0], "")}
        self._new_polls_s = _times(new_polls)
        times = np.concatenate([self._observations.at_s, self._new_polls_s])
        self._from_s, self._to_s = self._window(int(times.min(initial=_LAST)), int(times.max(initial=_FIRST)))
        stored = _stored_polls(connection, self._scopes, self._from_s, self._to_s)
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
        columns: list[tuple[int, ...]] = []
        for gpu_count, segment in self._names.segments(self._part):
            span = {"segment": segment, "from_s": self._from_s, "to_s": self._to_s}
            for number, machine, *run in self._connection.execute(_RUNS, span):
                place = keys.setdefault((machine, gpu_count), len(keys))
                numbers[place] = number
                columns.append((place, *run))
        table = np.array(columns, np.int64).reshape(-1, len(PriceRuns._fields))
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
        runs = price_runs(*observed, self._polls)
        # what reaches the end of the window ended after it, and nothing new affects that
        reaching = np.flatnonzero(runs.seen_s >= self._to_s)
        own = keyed(runs.offer[reaching], runs.seen_s[reaching])
        runs.ended_s[reaching] = old.ended_s[np.searchsorted(keyed(old.offer, old.seen_s), own)]
        return runs

    def _write(self, stored: _StoredRuns, runs: PriceRuns) -> None:
        old, numbers = stored.runs, stored.numbers
        series_ids = self._names.series(self._part, self._observations.keys)
        numbers[: len(self._observations.keys)] = [series_ids[key] for key in self._observations.keys]
        is_dropped, is_added = _missing_from(old, runs), _missing_from(runs, old)
        dropped = zip(numbers[old.offer[is_dropped]].tolist(), old.from_s[is_dropped].tolist(), strict=True)
        dropped_keys = [{"series": number, "from_s": from_s} for number, from_s in dropped]
        execute_many(self._connection, _DELETE_RUN, dropped_keys)
        columns = (column[is_added].tolist() for column in (numbers[runs.offer], *runs[1:]))
        new_rows = [
            {
                "series_id": number,
                "seen_from_s": from_s,
                "seen_to_s": seen_s,
                "machine_microusd_hour": microusd,
                "ended_s": None if ended_s == NEVER_S else ended_s,
            }
            for number, from_s, seen_s, microusd, ended_s in zip(*columns, strict=True)
        ]
        execute_many(self._connection, insert(price_interval), new_rows)

    def _window(self, first_s: int, last_s: int) -> tuple[int, int]:
        """Return the last poll before and the first one after the new rows: these affect nothing outside."""
        before = complete_poll_before(self._connection, self._scopes, first_s)
        after = complete_poll_after(self._connection, self._scopes, last_s)
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
        | (others.ended_s[position] != runs.ended_s[inside])
    )
    return missing
