"""`gpuwatch store import --recorded`: real prices of others, moved to end now, and said to be that."""

from __future__ import annotations

import csv
import gzip
from datetime import UTC, datetime, timedelta

import pytest

from gpuwatch.app.history.recorded_prices import RECORDED, RECORDED_SINCE, RECORDED_UNTIL, recorded_prices
from tests.checkout import TESTS
from tests.cli.conftest import Shell

SOURCE = next((TESTS / "recorded" / "price-history").glob("primeintellect-*"))


@pytest.fixture
def stored(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("GPUWATCH_DATABASE_URL", f"sqlite:///{shell.folder}/gpuwatch.db")
    return shell


def test_nothing_but_the_time_and_the_name_of_the_provider_differs_from_what_was_recorded() -> None:
    now = datetime(2026, 5, 3, 12, 34, 56, tzinfo=UTC)
    with gzip.open(SOURCE, "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["gpu_count"]) <= 8]
    with recorded_prices(now) as path, path.open(newline="") as file:
        moved = list(csv.DictReader(file))
    first, last = rows[0]["observed_at"], rows[-1]["observed_at"]
    assert (first[:10], last[:10]) == (RECORDED_SINCE, RECORDED_UNTIL)
    by = datetime.fromisoformat(moved[-1]["observed_at"]) - datetime.fromisoformat(last)
    assert by % timedelta(hours=1) == timedelta()
    assert timedelta() <= now - datetime.fromisoformat(moved[-1]["observed_at"]) < timedelta(hours=1)
    for row in rows:
        row["observed_at"] = f"{datetime.fromisoformat(row['observed_at']) + by:%Y-%m-%dT%H:%M:%SZ}"
        row["provider"] = f"{RECORDED}:{row['provider'].partition(':')[2]}"
    assert moved == rows


def test_they_are_a_history_that_the_commands_answer_from(stored: Shell) -> None:
    ran = stored("import", "--recorded")
    assert ran.code == 0, ran.err
    assert ran.err == ""
    assert "recorded-prices.csv: 18,669 rows: 18,669 new, 0 known" in ran.out
    assert "recorded, live prices" in ran.out
    market = {row["gpu"]: row for row in stored("market", "--json").json["gpus"]}
    assert {"H100 SXM", "A100 SXM 80GB"} <= set(market)
    history = stored("history", "H100 SXM", "--json").json
    assert len(history["points"]) > 13 * 24


def test_a_second_time_they_would_lie_beside_themselves(stored: Shell) -> None:
    assert stored("import", "--recorded").code == 0
    again = stored("import", "--recorded")
    assert again.code == 2
    assert "already holds the recorded prices" in again.err


def test_a_file_or_the_recorded_ones_must_be_named(stored: Shell) -> None:
    ran = stored("import")
    assert ran.code == 2
    assert "name a FILE, or --recorded" in ran.err
