"""A hundred watches on twenty GPUs, on the virtual clock: offers are seen in time, within turns and rows."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from benchmarks.polling_day import early, simulate
from benchmarks.seen import scenario, waits_s

HOURS = 3.0


@pytest.mark.slow
def test_a_hundred_watches_see_within_four_times_what_one_needs_at_the_most(tmp_path: Path) -> None:
    """One watch is polled every 30 s: it sees within 15 s on average, at most 30 s, plus the time of an answer."""
    day = simulate(scenario(100, HOURS, 20_000), 1, tmp_path)
    found, missed = waits_s(day)
    assert len(found) >= 20
    assert statistics.median(found) <= 4 * 15.0
    assert missed <= len(found) / 10
    assert early(day.searches) == 0
    rows = sum(search.rows for search in day.searches)
    assert rows <= 20_000 * HOURS / 24 * 1.2, "the sweep at the start is a little ahead of its time"
