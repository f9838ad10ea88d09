"""Deadlines of jobs, as people write them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.domain.jobs.queue import deadline_from

SATURDAY = datetime(2026, 11, 21, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Sunday", "2026-11-22T22:59:00+00:00"),
        ("sun", "2026-11-22T22:59:00+00:00"),
        ("Saturday", "2026-11-21T22:59:00+00:00"),
        ("friday", "2026-11-27T22:59:00+00:00"),
        ("tomorrow", "2026-11-22T22:59:00+00:00"),
        ("2026-12-01", "2026-12-01T22:59:00+00:00"),
        ("2026-12-01T08:00", "2026-12-01T07:00:00+00:00"),
        ("2026-12-01T08:00:00Z", "2026-12-01T08:00:00+00:00"),
        ("2d", "2026-11-23T12:00:00+00:00"),
    ],
)
def test_days_times_and_durations(text: str, found: str) -> None:
    assert deadline_from(text, SATURDAY, BERLIN).isoformat() == found


@pytest.mark.parametrize("text", ["someday", "s", "t", "2026-13-01", ""])
def test_what_cannot_be_read_says_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match='expected a day such as "Sunday"'):
        deadline_from(text, SATURDAY, BERLIN)


def test_the_past_is_no_deadline() -> None:
    with pytest.raises(ValueError, match="is past"):
        deadline_from("2020-01-01", SATURDAY, BERLIN)
