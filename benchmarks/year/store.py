"""A store of a year: 15 providers, 60 GPUs, about 2.95 M prices, 5.7 M hourly rows, 4.45 M polls; under two minutes.

    python -m benchmarks.year.store URL [--part 0.1] [--seed 7] [--until 2026-11-29T03:00:00+00:00]

URL: sqlite:////tmp/year.db (the file must not exist), or a postgresql+psycopg URL of an empty database, to which the
user is a superuser.
"""

from __future__ import annotations

import argparse
import time
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import update

from benchmarks.year.hourly import hour_rows
from benchmarks.year.market import (
    GPUS,
    INTERVALS,
    PLACES,
    Ints,
    Scope,
    Year,
    gaps,
    hunts,
    prices,
    scopes,
    segment_sizes,
)
from benchmarks.year.writing import TableWriter, new_store
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import REFERENCE_DISK_GB, disk_microusd_hour
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.setup.tables import (
    history_state,
    hourly,
    place,
    poll,
    price_interval,
    quota_day,
    segment,
    series,
)

_ROLL_UP_DELAY_S = 300
_POLLS_AT_ONCE = 200_000


def build(url: str, year: Year) -> dict[str, int]:
    """Write the store; return the number of rows of each table."""
    sold = scopes(year)
    with new_store(url, (poll, price_interval, hourly, series)) as writer:
        rows = {
            "poll": _PollWriter(writer, year, sold).write(),
            **_write_prices(writer, year, sold),
        }
        state = {"version": rows["poll"], "next_hour": (year.until_s - _ROLL_UP_DELAY_S) // HOUR_S}
        writer.connection.execute(update(history_state).values(state))
    return rows


def _write_prices(writer: TableWriter, year: Year, sold: list[Scope]) -> dict[str, int]:
    rng = np.random.default_rng([year.seed, 5])
    regions, countries = (list(column) for column in zip(*PLACES, strict=True))
    writer.write(place, {"id": np.arange(1, len(PLACES) + 1), "region": regions, "country": countries})
    rows = {"price_interval": 0, "hourly": 0, "series": 0, "segment": 0}
    parts = [(scope, count) for scope in sold for count in scope.counts]
    writer.write(segment, _segment_columns(parts))
    for number, ((scope, count), size) in enumerate(zip(parts, segment_sizes(year, sold), strict=True)):
        drawn = prices(year, scope, count, size, number)
        first_id = rows["series"] + 1
        machines = int(drawn.series.max()) + 1
        is_open = np.zeros(machines, np.int64)
        is_open[drawn.series[drawn.ended_s < 0]] = 1
        writer.write(series, _series_columns(rng, first_id, number + 1, is_open))
        disk = scope.seller.disk_microusd_gb_month
        writer.write(
            price_interval,
            {
                "series_id": first_id + drawn.series,
                "seen_from_s": drawn.from_s,
                "seen_to_s": drawn.to_s,
                "machine_microusd_hour": drawn.machine_microusd,
                "disk_microusd_gb_month": disk,
                "ended_s": drawn.ended_s,
            },
        )
        end_hour = (year.until_s - _ROLL_UP_DELAY_S) // HOUR_S
        disk_hour = disk_microusd_hour(disk, REFERENCE_DISK_GB)
        hours = hour_rows(drawn, disk_hour, count, gaps(scope.covering_s), end_hour)
        writer.write(hourly, {"segment_id": number + 1, **hours._asdict()})
        rows["series"] += machines
        rows["price_interval"] += len(drawn.series)
        rows["hourly"] += len(hours.hour)
        rows["segment"] += 1
    return rows


def _segment_columns(parts: list[tuple[Scope, int]]) -> dict[str, object]:
    families = {one.name: one.family for one in catalog().gpus()}
    return {
        "id": np.arange(1, len(parts) + 1),
        "provider": [scope.seller.name for scope, _ in parts],
        "gpu": [scope.gpu for scope, _ in parts],
        "gpu_count": [count for _, count in parts],
        "spot": [scope.spot for scope, _ in parts],
        "gpu_family": [families[scope.gpu] for scope, _ in parts],
        "gpu_memory_gib": [float(GPUS[scope.gpu][1]) for scope, _ in parts],
    }


def _series_columns(rng: np.random.Generator, first_id: int, segment_id: int, is_open: Ints) -> dict[str, object]:
    ids = np.arange(first_id, first_id + len(is_open))
    return {
        "id": ids,
        "segment_id": segment_id,
        "machine_id": [str(10_000 + one) for one in ids.tolist()],
        "on_offer": is_open,
        "offer_id": [str(20_000_000 + 7 * one) for one in ids.tolist()],
        "place_id": rng.integers(1, len(PLACES) + 1, len(ids)),
        "reliability_ppm": 1_000_000 - rng.exponential(9_000, len(ids)).astype(np.int64).clip(0, 200_000),
        "verification": (rng.random(len(ids)) < 0.8).astype(np.int64),
    }


class _PollWriter:
    """Writes every poll, in the order of time."""

    def __init__(self, writer: TableWriter, year: Year, sold: list[Scope]) -> None:
        self._writer = writer
        self._rng = np.random.default_rng([year.seed, 6])
        hunted = list(hunts(year, sold))
        self._every = [(scope, "sweep") for scope in sold] + [(scope, "hunt") for scope, _ in hunted]
        self._times = [scope.at_s for scope in sold] + [at_s for _, at_s in hunted]
        self._failed = [scope.failed for scope in sold] + [self._rng.random(len(at_s)) < 0.002 for _, at_s in hunted]
        self._quota: dict[tuple[str, int], int] = {}

    def write(self) -> int:
        """Write polls and quotas; return the number of polls."""
        of = np.concatenate([np.full(len(one), number) for number, one in enumerate(self._times)])
        at_s, failed = np.concatenate(self._times), np.concatenate(self._failed)
        order = np.argsort(at_s, kind="stable")
        for start in range(0, len(order), _POLLS_AT_ONCE):
            part = order[start : start + _POLLS_AT_ONCE]
            self._write(of[part], at_s[part], failed[part], start + 1)
        providers, days = zip(*self._quota, strict=True)
        rows = list(self._quota.values())
        self._writer.write(quota_day, {"provider": list(providers), "day": list(days), "rows": rows})
        return len(order)

    def _write(self, of: Ints, at_s: Ints, failed: NDArray[np.bool_], first_id: int) -> None:
        polled = [self._every[number] for number in of.tolist()]
        is_sweep = np.array([lane == "sweep" for _, lane in self._every])[of]
        drawn = np.where(is_sweep, self._rng.integers(2, 40, len(of)), self._rng.integers(0, 3, len(of)))
        rows = np.where(failed, 0, drawn)
        skipped = np.where(failed, 0, self._rng.random(len(of)) < 0.01).astype(np.int64)
        for (scope, _), moment, size in zip(polled, at_s.tolist(), rows.tolist(), strict=True):
            key = scope.seller.name, moment // 86_400
            self._quota[key] = self._quota.get(key, 0) + size
        columns = {
            "id": np.arange(first_id, first_id + len(of)),
            "provider": [scope.seller.name for scope, _ in polled],
            "lane": [lane for _, lane in polled],
            "gpu": [scope.gpu for scope, _ in polled],
            "spot": [scope.spot for scope, _ in polled],
            "at_s": at_s,
            "completeness": ["failed" if error else "complete" for error in failed.tolist()],
            "covers": (is_sweep & ~failed).astype(np.int64),
            "complete_to_microusd": None,
            "rows": rows,
            "skipped": skipped,
            "elapsed_ms": np.where(failed, 0, self._rng.integers(120, 1900, len(of))),
            "error": ["HTTP 503: no answer" if error else None for error in failed.tolist()],
            "not_understood": ['{"unknown GPU": 1}' if one else None for one in skipped.tolist()],
        }
        self._writer.write(poll, columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--part", type=float, default=1.0, help="share of what the providers sell")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--until", type=datetime.fromisoformat, default=real_now())
    args = parser.parse_args()
    began_s = time.monotonic()
    share = args.part * args.days / 365
    year = Year(args.seed, int(args.until.timestamp()), args.days, round(INTERVALS * share), args.part)
    rows = build(args.url, year)
    print(", ".join(f"{count:,} {name}" for name, count in rows.items()), f"in {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
