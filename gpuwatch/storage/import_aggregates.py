"""Roll-ups of hours of which an import said something new; those of all other sources stay as they are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby

from gpuwatch.storage.executor import Executor, Row
from gpuwatch.storage.hourly_aggregates import write_rows
from gpuwatch.storage.hourly_rollup import (
    COVER_LASTS_S,
    HOUR_S,
    CoveringPoll,
    CoverScope,
    HourlyRollup,
    PricedInterval,
    Segment,
    ended_at,
)
from gpuwatch.storage.open_prices import OpenPrices

_COVERS = """SELECT gpu, spot, at_s, complete_to_microusd FROM poll
 WHERE covers = 1 AND provider = ? AND at_s >= ? AND at_s < ?"""
_STAYS = """SELECT p.series_id, s.segment_id, p.seen_from_s, p.seen_to_s, p.machine_microusd_hour
 FROM segment g JOIN series s ON s.segment_id = g.id JOIN price_interval p ON p.series_id = s.id
 WHERE g.provider = ? AND p.seen_from_s < ? AND p.seen_to_s >= ? ORDER BY p.series_id, p.seen_from_s"""


def reaggregate_hours(executor: Executor, ids: OpenPrices, name: str, moments: Iterable[int]) -> None:
    """Aggregate every hour again for which these moments are valid."""
    hours = sorted(
        {hour for at_s in moments for hour in range(at_s // HOUR_S, (at_s + COVER_LASTS_S - 1) // HOUR_S + 1)}
    )
    segments = {number: segment for segment, number in ids.segments.items() if segment[0] == name}
    start_s, end_s = hours[0] * HOUR_S, (hours[-1] + 1) * HOUR_S
    covers = _covers(executor, name, segments, start_s - COVER_LASTS_S, end_s)
    made = [HourlyRollup(hour, segments, covers, end_s) for hour in hours]
    for stay in _intervals(executor, name, segments, covers, start_s, end_s):
        last_s = end_s if stay.until_s is None else min(stay.until_s, end_s)
        first, after = stay.from_s // HOUR_S, -(-last_s // HOUR_S)
        for at in range(bisect_left(hours, first), bisect_left(hours, after)):
            made[at].add((stay,))
    for hour, one in zip(hours, made, strict=True):
        write_rows(executor, hour, one.rows(), ids, instead_of=list(segments))


def _covers(
    executor: Executor, name: str, segments: dict[int, Segment], from_s: int, until_s: int
) -> dict[CoverScope, list[CoveringPoll]]:
    by_part: dict[tuple[str, int], list[CoveringPoll]] = {}
    for gpu, spot, at_s, bound in executor.rows(_COVERS, (name, from_s, until_s)):
        by_part.setdefault((gpu, spot), []).append(CoveringPoll(at_s, bound))
    return {
        (name, gpu, spot): sorted(
            {*by_part.get((gpu, spot), ()), *by_part.get(("", spot), ())}, key=lambda cover: cover.at_s
        )
        for _, gpu, _, spot in segments.values()
    }


def _intervals(
    executor: Executor,
    name: str,
    segments: dict[int, Segment],
    covers: dict[CoverScope, list[CoveringPoll]],
    start_s: int,
    end_s: int,
) -> Iterable[PricedInterval]:
    times = {scope: [cover.at_s for cover in found] for scope, found in covers.items()}
    rows: Sequence[Row] = executor.rows(_STAYS, (name, end_s, start_s - COVER_LASTS_S))
    for _, group in groupby(rows, key=lambda row: row[0]):
        mine = list(group)
        seen = [(row[2], row[3]) for row in mine]
        provider, gpu, _, spot = segments[mine[0][1]]
        for at, (series, segment, from_s, _, microusd) in enumerate(mine):
            until_s = ended_at(seen, at, times[(provider, gpu, spot)])
            yield PricedInterval(segment, series, from_s, until_s, microusd)
