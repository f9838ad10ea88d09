"""The import's hourly figures equal those of `HourlyRollup`, which aggregates one hour at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.storage.database import Database
from gpuwatch.storage.executor import Executor, driver_executor
from gpuwatch.storage.hourly_aggregates import aggregate_hours, segments_by_id
from gpuwatch.storage.hourly_rollup import HOUR_S
from gpuwatch.storage.import_rollup import replace_aggregates
from gpuwatch.storage.open_prices import OpenPrices, load_ids
from tests.storage.test_history_recorder_model import emptied

START_S = 480_000 * HOUR_S
MOMENTS = st.integers(0, 9 * HOUR_S)
RUNS = st.lists(
    st.tuples(MOMENTS, st.integers(0, 8000), st.sampled_from([1, 999_999, 2_000_000, 9 * 10**9])), max_size=5
)
POLLS = st.lists(st.tuples(MOMENTS, st.sampled_from(["", "H100"]), st.sampled_from([None, None, 10**6, 2 * 10**6])))


def stored(
    executor: Executor, offers: list[list[tuple[int, int, int]]], polls: list[tuple[int, str, int | None]]
) -> None:
    """Offers of one GPU and of two, in one store."""
    executor.run("INSERT INTO place (id, region, country) VALUES (9, '', '')")
    for count in (1, 2):
        executor.run(
            "INSERT INTO segment (id, provider, gpu, gpu_count, spot, gpu_family)"
            " VALUES (?, 'x:history', 'H100', ?, 0, 'H100')",
            (count, count),
        )
    for number, runs in enumerate(offers, 1):
        executor.run(
            "INSERT INTO series (id, segment_id, machine_id, on_offer, offer_id, place_id) VALUES (?, ?, ?, 0, 'o', 9)",
            (number, 1 + number % 2, f"m{number}"),
        )
        after = -1
        for from_s, lasts_s, microusd in sorted(runs):
            if from_s > after:
                after = from_s + lasts_s
                row = (number, START_S + from_s, START_S + after, microusd)
                executor.run(
                    "INSERT INTO price_interval (series_id, seen_from_s, seen_to_s, machine_microusd_hour)"
                    " VALUES (?, ?, ?, ?)",
                    row,
                )
    for at_s, gpu, bound in polls:
        executor.run(
            "INSERT INTO poll (provider, lane, gpu, spot, at_s, completeness, covers, complete_to_microusd, rows,"
            " skipped, elapsed_ms) VALUES ('x:history', 'import', ?, 0, ?, 'complete', 1, ?, 0, 0, 0)",
            (gpu, START_S + at_s, bound),
        )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(offers=st.lists(RUNS, max_size=5), polls=POLLS, moments=st.sets(MOMENTS, min_size=1, max_size=4))
def test_all_hours_at_once_are_the_hours_one_by_one(
    sqlite_database: Database,
    offers: list[list[tuple[int, int, int]]],
    polls: list[tuple[int, str, int | None]],
    moments: set[int],
) -> None:
    emptied(sqlite_database)
    with sqlite_database.write() as connection:
        executor = driver_executor(connection)
        stored(executor, offers, polls)
        ids = OpenPrices()
        load_ids(executor, ids)
        segments = segments_by_id(ids)
        at_s = np.array([START_S + moment for moment in moments])
        hours = sorted(
            {hour for one in at_s.tolist() for hour in range(one // HOUR_S, (one + 3 * HOUR_S - 1) // HOUR_S + 1)}
        )
        expected = {
            (ids.segments[segment], hour, *row)
            for hour, made in aggregate_hours(executor, hours, segments, (hours[-1] + 1) * HOUR_S).items()
            for segment, row in made.items()
        }
        replace_aggregates(executor, segments, at_s)
        found = {tuple(row) for row in executor.rows("SELECT * FROM hourly")}
    assert found == expected
