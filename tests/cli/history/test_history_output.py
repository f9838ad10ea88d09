"""The output of `gpuwatch history` for results of the store."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.app.history.period_view import PeriodView, period_fields
from gpuwatch.cli.history.price_history import print_periods
from gpuwatch.cli.terminal_tables import csv_out
from gpuwatch.domain.history.price_series import PricePeriod

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
TRACK = [
    PricePeriod(starts_at=NOON, hours=1, polled=False),
    PricePeriod(starts_at=NOON + timedelta(hours=1), hours=1, polled=True),
    PricePeriod(
        starts_at=NOON + timedelta(hours=2),
        hours=1,
        polled=True,
        offers=3,
        min_microusd=2_000_000,
        min_with_commission_microusd=2_400_000,
        q1_microusd=2_100_000,
        median_microusd=2_500_000,
        q3_microusd=3_000_000,
    ),
]


def test_no_data_and_no_offers_are_different(capsys: pytest.CaptureFixture[str]) -> None:
    print_periods([TRACK[1], TRACK[0], TRACK[2]], "H100", ZoneInfo("Europe/Berlin"), by_hour=True)
    lines = capsys.readouterr().out.splitlines()
    assert any("13:00" in line and "no data" in line for line in lines)
    assert any("14:00" in line and "no offers" in line for line in lines)
    assert any("15:00" in line and "2.4000" in line and "2.0000" in line for line in lines)


def test_the_time_before_the_first_poll_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_periods(TRACK, "H100", ZoneInfo("Europe/Berlin"), by_hour=True)
    assert "no data" not in capsys.readouterr().out


def test_a_gpu_that_was_never_polled_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    print_periods(TRACK[:1], "H100", ZoneInfo("UTC"), by_hour=True)
    assert "no data" in capsys.readouterr().out


def test_csv_has_a_line_for_every_hour(capsys: pytest.CaptureFixture[str]) -> None:
    csv_out([PeriodView.of(one, **period_fields(one)).json() for one in TRACK])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["looked"] for row in rows] == ["False", "True", "True"]
    assert rows[2]["starts_at"] == "2026-03-02T14:00:00Z"
    assert float(rows[2]["min_price_usd_gpu_hour"]) == 2.4
    assert rows[0]["min_listed_usd_gpu_hour"] == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "|cmd"])
def test_a_cell_is_never_a_formula(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    csv_out([{"name": text}])
    assert next(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))["name"] == "'" + text
