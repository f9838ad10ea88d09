"""Joins observations and polls with those that the store holds of the same source: what stood there is taken apart into
observations around the new ones, and put together again. So it does not matter which came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, func, insert, select

from gpuwatch.domain.analysis.offer_intervals import CompletePoll, PollTimeline, PriceRun, price_runs
from gpuwatch.storage.import_batches import ImportBatch, ImportIds, MachineKey, MarketPart, ObservedPrices
from gpuwatch.storage.open_prices import OpenPrices
from gpuwatch.storage.tables import poll, price_interval, series

_FIRST, _LAST = 0, 2**31 - 1
_RUNS = (
    select(
        series.c.id,
        series.c.machine_id,
        price_interval.c.seen_from_s,
        price_interval.c.seen_to_s,
        price_interval.c.machine_microusd_hour,
    )
    .join(price_interval, price_interval.c.series_id == series.c.id)
    .where(series.c.segment_id == bindparam("segment"))
    .where(price_interval.c.seen_from_s <= bindparam("to_s"), price_interval.c.seen_to_s >= bindparam("from_s"))
    .order_by(series.c.id, price_interval.c.seen_from_s)
)
_DROP = delete(price_interval).where(
    price_interval.c.series_id == bindparam("series"), price_interval.c.seen_from_s == bindparam("from_s")
)


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


def merge(connection: Connection, ids: OpenPrices, batch: ImportBatch, *, dry_run: bool) -> MergeCounts:
    """Write what is new in a batch; `ids` gets the names and numbers that are made for it."""
    fresh = {part: _new_polls(connection, batch.name, part, polls) for part, polls in batch.polls.items()}
    total = MergeCounts(twice=batch.twice, polls=len({poll.at_s for polls in fresh.values() for poll in polls}))
    names = ImportIds(connection, ids, batch)
    for part in _parts(ids, batch, fresh):
        total += _PartMerge(connection, names, batch, part, _polls_about(fresh, part)).merge(dry_run=dry_run)
    for part, polls in fresh.items():
        total.changed_s.update(poll.at_s for poll in polls)
        if polls and not dry_run:
            rows = [_poll_row(batch, part, one) for one in sorted(polls, key=lambda one: one.at_s)]
            connection.execute(insert(poll), rows)
    return total


def _poll_row(batch: ImportBatch, part: MarketPart, poll: CompletePoll) -> dict[str, Any]:
    gpu, spot = part
    return {
        "provider": batch.name,
        "lane": "import",
        "gpu": gpu,
        "spot": int(spot),
        "at_s": poll.at_s,
        "completeness": "complete" if poll.to_microusd is None else "truncated",
        "covers": 1,
        "complete_to_microusd": poll.to_microusd,
        "rows": batch.seen_at(poll.at_s, gpu, spot),
        "skipped": 0,
        "elapsed_ms": 0,
    }


def _new_polls(connection: Connection, name: str, part: MarketPart, polls: set[CompletePoll]) -> set[CompletePoll]:
    times = [poll.at_s for poll in polls]
    return polls - _stored_polls(connection, _covering(name, part[:1], part[1]), min(times), max(times))


def _stored_polls(connection: Connection, wanted: ColumnElement[bool], from_s: int, to_s: int) -> set[CompletePoll]:
    found = select(poll.c.at_s, poll.c.complete_to_microusd).where(wanted, poll.c.at_s.between(from_s, to_s))
    return {CompletePoll(at_s, bound) for at_s, bound in connection.execute(found)}


def _covering(name: str, gpus: Sequence[str], spot: bool) -> ColumnElement[bool]:
    return and_(poll.c.covers == 1, poll.c.provider == name, poll.c.gpu.in_(gpus), poll.c.spot == int(spot))


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
        self, connection: Connection, names: ImportIds, batch: ImportBatch, part: MarketPart, fresh: set[CompletePoll]
    ) -> None:
        self._connection = connection
        self._names = names
        self._batch = batch
        self._part = part
        self._fresh = fresh
        self._covering = _covering(batch.name, (part[0], ""), part[1])  # its own polls, and those of all GPUs
        self._new = batch.observations.get(part, {})
        times = [at_s for seen in self._new.values() for at_s in (min(seen), max(seen))]
        times += [poll.at_s for poll in fresh]
        self._from_s, self._to_s = self._window(min(times, default=_LAST), max(times, default=_FIRST))
        stored = _stored_polls(connection, self._covering, self._from_s, self._to_s)
        self._stored_s = {poll.at_s for poll in stored}
        self._fresh_s = {poll.at_s for poll in fresh}
        self._old_looks = PollTimeline(stored)
        self._looks = PollTimeline(stored | fresh)

    def merge(self, *, dry_run: bool) -> MergeCounts:
        """Write what changes; answers what is new."""
        merged = MergeCounts()
        numbers, old = self._old_runs()
        dropped: list[dict[str, int]] = []
        added: list[tuple[MachineKey, PriceRun]] = []
        for key in dict.fromkeys((*self._new, *(old if self._fresh else ()))):
            mine, seen = old.get(key, []), self._new.get(key, {})
            self._count(merged, mine, seen)
            made = price_runs(sorted(self._points(mine, seen).items()), self._looks)
            dropped += [{"series": numbers[key], "from_s": run.from_s} for run in mine if run not in made]
            added += [(key, run) for run in made if run not in mine]
        if not dry_run:
            numbers |= self._names.series(self._part, self._new)
            if dropped:
                self._connection.execute(_DROP, dropped)
            if added:
                self._connection.execute(insert(price_interval), [_run_row(numbers[key], run) for key, run in added])
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
        whole = and_(self._covering, poll.c.complete_to_microusd.is_(None))
        before = select(func.max(poll.c.at_s)).where(whole, poll.c.at_s < first_s)
        after = select(func.min(poll.c.at_s)).where(whole, poll.c.at_s > last_s)
        execute = self._connection.execute
        return execute(before).scalar_one() or _FIRST, execute(after).scalar_one() or _LAST

    def _old_runs(self) -> tuple[dict[MachineKey, int], dict[MachineKey, list[PriceRun]]]:
        numbers: dict[MachineKey, int] = {}
        found: dict[MachineKey, list[PriceRun]] = {}
        for gpu_count, segment in self._names.segments(self._part):
            wanted = {"segment": segment, "from_s": self._from_s, "to_s": self._to_s}
            for (number, machine), group in groupby(self._connection.execute(_RUNS, wanted), key=lambda row: row[:2]):
                numbers[(machine, gpu_count)] = number
                found[(machine, gpu_count)] = [PriceRun(*run) for _, _, *run in group]
        return numbers, found


def _run_row(series_id: int, run: PriceRun) -> dict[str, int]:
    prices = {"seen_from_s": run.from_s, "seen_to_s": run.seen_s, "machine_microusd_hour": run.microusd}
    return {"series_id": series_id, **prices}
