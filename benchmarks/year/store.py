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
    prices,
    scopes,
    segment_sizes,
)
from benchmarks.year.polls import PollWriter
from benchmarks.year.writing import TableWriter, new_store
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import REFERENCE_DISK_GB, disk_microusd_hour
from gpuwatch.domain.setup.durations import DAY_S, HOUR_S
from gpuwatch.storage.setup.tables import (
    history_state,
    hourly,
    place,
    poll,
    price_interval,
    segment,
    series,
)

_ROLL_UP_DELAY_S = 300


def build(url: str, year: Year) -> dict[str, int]:
    """Write the store; return the number of rows of each table."""
    sold = scopes(year)
    with new_store(url, (poll, price_interval, hourly, series)) as writer:
        rows = {
            "poll": PollWriter(writer, year, sold).write(),
            **_write_prices(writer, year, sold),
        }
        state = {"version": rows["poll"], "next_hour": (year.until_s - _ROLL_UP_DELAY_S) // HOUR_S}
        state["packed_to_day"] = year.until_s // DAY_S
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
