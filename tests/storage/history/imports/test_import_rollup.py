"""The import's hourly figures equal those of `HourlyRollup`, which aggregates one hour at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, insert, select

from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.storage.history.imports.import_rollup import replace_aggregates
from gpuwatch.storage.history.recording.hourly_aggregates import aggregate_hours, matching_segments
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.tables import hourly, place, poll, price_interval, segment, series
from tests.storage.history.recording.test_history_recorder_model import emptied

START_S = 480_000 * HOUR_S
MOMENTS = st.integers(0, 9 * HOUR_S)
RUNS = st.lists(
    st.tuples(MOMENTS, st.integers(0, 8000), st.sampled_from([1, 999_999, 2_000_000, 9 * 10**9])), max_size=5
)
POLLS = st.lists(st.tuples(MOMENTS, st.sampled_from(["", "H100"]), st.sampled_from([None, None, 10**6, 2 * 10**6])))


def stored(
    connection: Connection, offers: list[list[tuple[int, int, int]]], polls: list[tuple[int, str, int | None]]
) -> None:
    """Offers of one GPU and of two, in one store."""
    connection.execute(insert(place), {"id": 9, "region": "", "country": ""})
    h100 = {"provider": "x:history", "gpu": "H100", "spot": 0, "gpu_family": "H100"}
    connection.execute(insert(segment), [{"id": count, "gpu_count": count} | h100 for count in (1, 2)])
    for number, runs in enumerate(offers, 1):
        machine = {"id": number, "segment_id": 1 + number % 2, "machine_id": f"m{number}"}
        connection.execute(insert(series), machine | {"on_offer": 0, "offer_id": "o", "place_id": 9})
        after = -1
        for from_s, lasts_s, microusd in sorted(runs):
            if from_s > after:
                after = from_s + lasts_s
                missed = [at_s for at_s, _, bound in polls if at_s > after and (bound is None or bound >= microusd)]
                ended_s = min([*missed, *(run[0] for run in runs if run[0] > after)], default=None)
                span = {"series_id": number, "seen_from_s": START_S + from_s, "seen_to_s": START_S + after}
                end = {"ended_s": None if ended_s is None else START_S + ended_s}
                connection.execute(insert(price_interval), span | end | {"machine_microusd_hour": microusd})
    counts = dict.fromkeys(("rows", "skipped", "elapsed_ms"), 0)
    complete = {"provider": "x:history", "lane": "import", "spot": 0, "completeness": "complete", "covers": 1} | counts
    for at_s, gpu, bound in polls:
        connection.execute(insert(poll), complete | {"gpu": gpu, "at_s": START_S + at_s, "complete_to_microusd": bound})


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
        stored(connection, offers, polls)
        segments = matching_segments(connection, MarketFilter(provider="x:history"))
        ids = {key: number for number, key in segments.items()}
        at_s = np.array([START_S + moment for moment in moments])
        hours = sorted(
            {hour for one in at_s.tolist() for hour in range(one // HOUR_S, (one + 3 * HOUR_S - 1) // HOUR_S + 1)}
        )
        expected = {
            (ids[key], hour, *row)
            for hour, made in aggregate_hours(connection, hours, segments, (hours[-1] + 1) * HOUR_S).items()
            for key, row in made.items()
        }
        replace_aggregates(connection, segments, at_s)
        found = {tuple(row) for row in connection.execute(select(hourly))}
    assert found == expected
