"""`gpuwatch history`, from the store and from the public series."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.cli.options import PastOptions
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.checkout import TESTS
from tests.cli.conftest import Shell
from tests.storage.stored_answers import an_answer, an_offer
from tests.upgraded_store import open_upgraded

SERIES = TESTS / "recorded" / "price-history"
AGGREGATOR = str(SERIES / "primeintellect-best-2025-10-19_11-03.csv.gz")
VAST = str(SERIES / "vastai-offers-2026-02-27_03-03.csv.gz")
WEEKLY = str(SERIES / "gcp-weekly-2022-02_2024-12.csv.gz")
OLD_FIELDS = [
    "starts_at",
    "looked",
    "offers",
    "min_price_usd_gpu_hour",
    "min_listed_usd_gpu_hour",
    "q1_listed_usd_gpu_hour",
    "median_listed_usd_gpu_hour",
    "q3_listed_usd_gpu_hour",
]


@pytest.fixture
def now() -> datetime:
    return real_now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)


def store_of(shell: Shell) -> SqlHistoryRecorder:
    """A new store."""
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    database = open_upgraded(f"sqlite:///{shell.folder}/gpuwatch.db")
    return SqlHistoryRecorder(database)


@pytest.fixture
def stored(shell: Shell, now: datetime) -> SqlHistoryRecorder:
    """A store with polls 50, 49, 2 and 1 hours ago."""
    history = store_of(shell)
    for hours, prices in ((50, {"a": 2.0, "b": 3.0}), (49, {"b": 3.0}), (2, {"a": 2.5}), (1, {})):
        offers = [an_offer(machine, usd, disk_usd_gb_month=None) for machine, usd in prices.items()]
        history.record(an_answer(*offers, observed_at=now - timedelta(hours=hours)), lane="sweep")
    return history


def test_gaps_are_reported_and_do_not_count(shell: Shell, stored: SqlHistoryRecorder) -> None:
    ran = shell("history", "H100", "--since", "3d", "--under", "2.4", "--under", "3.6", "--json")
    assert ran.code == Exit.DONE, ran.err
    (gap,) = ran.json["gaps"]
    assert gap["hours"] == 44
    under = {one["price_usd_gpu_hour"]: one for one in ran.json["under"]}
    assert under[2.4]["under_hours"] == pytest.approx(1.0)  # 2.00 listed is 2.40 with the commission, inclusive
    assert under[3.6]["under_hours"] == pytest.approx(1 + 3 + 1)
    assert under[3.6]["known_hours"] == pytest.approx(ran.json["known_hours"], abs=1.1)
    assert ran.json["samples"] == ran.json["known_hours"]
    assert {"method", "since", "until", "source", "every"} <= ran.json.keys()


def test_a_screen_shows_gaps_and_hours_without_offers_apart(shell: Shell, stored: SqlHistoryRecorder) -> None:
    ran = shell("history", "H100", "--since", "60h")
    lines = ran.out.splitlines()
    assert any("no data" in line and "0 of 44 h" in line for line in lines)
    assert any("no offers" in line for line in lines)
    assert any("░" in line for line in lines)
    assert any(line.startswith("known: ") and "1 gap, the longest 44 h" in line for line in lines)


def test_a_terminal_gets_the_same(shell: Shell, stored: SqlHistoryRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    ran = shell("history", "H100", "--since", "60h")
    assert ran.code == Exit.DONE, ran.err
    assert "no offers" in ran.out


def test_the_old_spelling_answers_as_it_did(shell: Shell, stored: SqlHistoryRecorder) -> None:
    ran = shell("history", "--gpu", "H100", "--days", "3", "--json")
    assert ran.code == Exit.DONE
    assert list(ran.json[0])[: len(OLD_FIELDS)] == OLD_FIELDS
    new = shell("history", "H100", "--since", "3d", "--json").json
    assert new["points"] == ran.json
    assert new["every"] == "1h"


def test_spot_alone_means_only(shell: Shell, stored: SqlHistoryRecorder) -> None:
    assert shell("history", "--gpu", "H100", "--spot").code == Exit.CANNOT_TELL
    assert shell("history", "H100", "--spot", "--since", "3d").code == Exit.CANNOT_TELL
    assert shell("history", "H100", "--spot", "no", "--since", "3d").code == Exit.DONE
    wrong = shell("history", "--spot", "H100")
    assert wrong.code == Exit.USAGE
    assert "before --spot" in wrong.err


def test_a_range_of_counts(shell: Shell, stored: SqlHistoryRecorder, now: datetime) -> None:
    pair = an_offer("p", 2.0, gpu_count=2, disk_usd_gb_month=None)
    stored.record(an_answer(pair, observed_at=now), lane="sweep")
    assert shell("history", "H100", "--count", "2-8", "--csv").out.count("True") > 0
    lows = shell("history", "H100", "--count", "2-8", "--json").json["points"]
    assert {point["min_listed_usd_gpu_hour"] for point in lows} == {None, 1.0}


def test_what_was_pruned_is_counted_by_the_hour(shell: Shell, stored: SqlHistoryRecorder, now: datetime) -> None:
    exact = shell("history", "H100", "--since", "3d", "--under", "2.4", "--json").json["under"][0]
    database = open_database(f"sqlite:///{shell.folder}/gpuwatch.db")
    prune(database, timedelta(hours=10), now + timedelta(hours=1))
    ran = shell("history", "H100", "--since", "3d", "--under", "2.4", "--json")
    (coarse,) = ran.json["under"]
    assert "hours whose lowest" in coarse["method"]
    assert "hours whose lowest" not in exact["method"]
    assert coarse["under_hours"] >= 1


def test_nobody_looked_is_not_nothing_on_offer(shell: Shell, stored: SqlHistoryRecorder) -> None:
    ran = shell("history", "A100", "--json")
    assert ran.code == Exit.CANNOT_TELL
    assert ran.json["samples"] == 0
    assert "never polled" in shell("history", "A100").out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "expected one GPU"),
        (("H100", "--gpu", "A100"), "expected one GPU"),
        (("H1000",), "did you mean H100"),
        (("H100", "--csv", "--json"), "use either"),
        (("H100", "--since", "5x"), "expected a duration"),
        (("H100", "--since", "1d", "--until", "2d"), "before --until"),
        (("H100", "--since", "2100-01-01"), "before --until"),
        (("H100", "--count", "8-4"), "expected a number of GPUs"),
        (("H100", "--under", "0"), "--under"),
        (("H100", "--data", "none.csv"), "does not exist"),
        (("H100", "--data", "gpuwatch.toml"), "columns"),
    ],
)
def test_what_is_wrong_is_reported_in_a_line(
    shell: Shell, stored: SqlHistoryRecorder, argv: tuple[str, ...], words: str
) -> None:
    ran = shell("history", *argv)
    assert ran.code == Exit.USAGE
    assert words in ran.err
    assert not ran.out
    assert len(ran.err.strip().splitlines()) == 1


def test_without_a_store_it_says_how_to_get_one(shell: Shell) -> None:
    ran = shell("history", "H100")
    assert ran.code == Exit.CANNOT_TELL
    assert "gpuwatch store upgrade" in ran.err


def test_the_public_series_of_an_aggregator(shell: Shell) -> None:
    found = shell("history", "H100", "--data", AGGREGATOR, "--every", "1w", "--under", "1.89", "--json").json
    assert (found["known_hours"], found["hours"]) == (357, 366)
    assert [point["min_price_usd_gpu_hour"] for point in found["points"]] == [1.89, 1.89, 1.80, 1.80]
    assert 0.5 < found["under"][0]["share"] < 1
    assert found["source"] == Path(AGGREGATOR).name


def test_a_commission_of_the_settings_is_in_the_prices_of_a_file(shell: Shell) -> None:
    plain = shell("history", "RTX 4090", "--data", VAST, "--every", "1w", "--json").json["points"][0]
    assert plain["min_price_usd_gpu_hour"] == pytest.approx(plain["min_listed_usd_gpu_hour"] * 1.2, abs=1e-6)
    shell.settings("[providers.vastai]\ncommission = 0\n")
    free = shell("history", "RTX 4090", "--data", VAST, "--every", "1w", "--json").json["points"][0]
    assert free["min_price_usd_gpu_hour"] == free["min_listed_usd_gpu_hour"] == plain["min_listed_usd_gpu_hour"]


def test_weekly_prices_are_known_for_three_hours_a_look(shell: Shell) -> None:
    ran = shell("history", "L4", "--data", WEEKLY, "--since", "2024-01-01")
    assert ran.code == Exit.DONE
    assert ran.out.count("of 168 h") > 40
    gaps = [line for line in ran.out.splitlines() if "no data" in line]  # few weeks without a poll
    assert any(gap.startswith("2024-06-03") and gap.endswith(" 0 of 168 h") for gap in gaps)
    assert len(gaps) < 10


def test_csv_of_a_file_has_a_line_for_each_span(shell: Shell) -> None:
    rows = list(csv.DictReader(io.StringIO(shell("history", "H200", "--data", VAST, "--every", "1d", "--csv").out)))
    assert [row["starts_at"][:10] for row in rows] == [
        f"2026-{day}" for day in ("02-27", "02-28", "03-01", "03-02", "03-03")
    ]
    assert {row["looked"] for row in rows} == {"True"}


def test_a_file_outside_the_asked_time_tells_its_span(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    ran = shell("history", "H100", "--data", VAST, "--since", "1d")
    assert ran.code == Exit.CANNOT_TELL
    assert "2026-02-27" in ran.err + caplog.text


def test_a_duration_counts_back_from_the_day_that_until_names(shell: Shell) -> None:
    found = shell("history", "H100", "--data", AGGREGATOR, "--since", "2d", "--until", "2025-10-30", "--json").json
    first = datetime.fromisoformat(found["since"])
    assert timedelta(0) <= first - datetime(2025, 10, 28, tzinfo=UTC) < timedelta(hours=2)


def test_a_picture(shell: Shell) -> None:
    pytest.importorskip("matplotlib")
    ran = shell("history", "H100", "--data", VAST, "--png", "h100.png", "--csv")
    assert ran.code == Exit.DONE
    assert (shell.folder / "h100.png").read_bytes().startswith(b"\x89PNG")
    assert shell("history", "H100", "--data", VAST, "--png", "none/h100.png").code == Exit.USAGE


def test_what_was_imported_answers_as_the_file_does(shell: Shell, stored: SqlHistoryRecorder) -> None:
    assert shell("import", VAST).code == Exit.DONE
    span = ["--until", "2026-03-04", "--every", "1d", "--under", "0.3", "--json"]
    ours = shell("history", "RTX 4090", "--since", "2026-01-01", *span).json
    theirs = shell("history", "RTX 4090", "--data", VAST, *span).json
    assert ours["gaps"] == theirs["gaps"]
    assert (ours["since"], ours["known_hours"]) == (theirs["since"], theirs["known_hours"])
    assert ours["under"] == theirs["under"]
    for mine, other in zip(ours["points"], theirs["points"], strict=True):
        assert (mine["starts_at"], mine["offers"], mine["known_hours"]) == (
            other["starts_at"],
            other["offers"],
            other["known_hours"],
        )
        assert mine["min_price_usd_gpu_hour"] == pytest.approx(other["min_price_usd_gpu_hour"], abs=2e-6)
        for quarter in ("q1", "median", "q3"):  # sketches in steps of 1 %
            field = f"{quarter}_price_usd_gpu_hour"
            assert mine[field] == pytest.approx(other[field], rel=0.011)


def test_a_hunt_does_not_vouch_for_what_it_did_not_ask_for(shell: Shell, now: datetime) -> None:
    history = store_of(shell)
    for hours, lane in ((30, "sweep"), (25, "hunt"), (20, "sweep"), (10, "sweep")):
        offer = an_offer("a", 1.0, disk_usd_gb_month=None)
        history.record(an_answer(offer, observed_at=now - timedelta(hours=hours)), lane=lane)
    ran = shell(
        "history", "H100", "--since", "3d", "--until", (now - timedelta(hours=5)).isoformat(), "--under", "2", "--json"
    )
    (under,) = ran.json["under"]
    assert (under["known_hours"], under["under_hours"]) == (9, 9)


def test_nothing_is_known_of_the_future(shell: Shell, stored: SqlHistoryRecorder, now: datetime) -> None:
    until = (now + timedelta(days=3)).isoformat()
    found = shell("history", "H100", "--since", "60h", "--until", until, "--under", "9", "--json").json
    assert found["gaps"] == shell("history", "H100", "--since", "60h", "--json").json["gaps"]
    assert found["under"][0]["known_hours"] < 8


def test_a_period_that_ends_now_has_what_was_stored_in_this_very_second() -> None:
    """A poll is stored with its second: `gpuwatch check && gpuwatch history` must not report an unpolled market."""
    now = datetime(2026, 11, 22, 12, 0, 7, 900_000, tzinfo=UTC)
    for until in (None, "2026-11-23"):
        past = PastOptions(count=None, spot="no", provider=None, since="30d", until=until, data=None)
        assert past.span(now)[1] == datetime(2026, 11, 22, 12, 0, 8, tzinfo=UTC)
