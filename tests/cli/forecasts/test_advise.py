"""`gpuwatch forecasts advise`, and `check` with max_price = "auto", as their users see them."""

from __future__ import annotations

import csv
import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.forecasts.price_forecasts import ForecastOutcome, ForecastScore, ForecastSource, PriceForecast
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.market.money import Commission
from gpuwatch.emulator import Marketplace
from gpuwatch.ports import Completeness
from gpuwatch.storage.forecasts.forecast_rows import SqlAutoPriceWaits, SqlForecasts
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.builders import a_watch, an_offer
from tests.checkout import TESTS
from tests.cli.conftest import Shell
from tests.engine.uow_fakes import an_answer

SERIES = TESTS / "recorded" / "price-history"
PRIME = str(SERIES / "primeintellect-best-2025-10-19_11-03.csv.gz")
VAST = str(SERIES / "vastai-offers-2026-02-27_03-03.csv.gz")
COLUMNS = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
H = timedelta(hours=1)


def test_the_public_series_of_the_h100(shell: Shell) -> None:
    words = ("advise", "H100 SXM", "--data", PRIME, "--since", "all", "--deadline", "2d", "--hours", "24")
    ran = shell(*words)
    assert ran.code == 0
    assert ran.out.startswith("Buy now: waiting up to 2d saves almost nothing, less than the risk.\n")
    for text in ("price now  $1.99/GPU-h", "limit now  $1.8", "357 polled hours of 366"):
        assert text in ran.out
    assert "Method" not in ran.out
    assert "Method: optimal stopping" in shell(*words, "--method").out
    assert shell(*words, "-v").out == shell(*words, "--method").out
    assert ran.err == ""


def test_its_json_says_the_same_with_its_method(shell: Shell) -> None:
    ran = shell("advise", "H100 SXM", "--data", PRIME, "--since", "all", "--json")
    found = ran.json
    assert found["verdict"] == "buy_now", "waiting saves less than the least saving"
    assert found["sentence"] == "Buy now: waiting up to 2d saves almost nothing, less than the risk."
    assert found["now_usd_gpu_hour"] == 1.99
    assert found["limit_usd_gpu_hour"] < 1.99
    assert [one["share"] for one in found["reached"]] == [0.5, 0.8, 0.95]
    reached = [one["price_usd_gpu_hour"] for one in found["reached"]]
    known = [price for price in reached if price is not None]
    assert known == sorted(known)
    assert None not in reached[: len(known)], "a larger share is never easier to tell"
    assert found["limits"][0]["hours_left"] == 48
    assert found["limits"][-1] == {"hours_left": 0, "limit_usd_gpu_hour": None}
    assert (found["samples"], found["since"]) == (357, "2025-10-19T21:00:00Z")
    saving = found["saving"]
    assert saving["share_low"] < saving["mean_low"] < saving["mean_high"] < saving["share_high"], "one wait varies more"
    assert 0 <= saving["share"] <= saving["mean_high"], "shrunk by what chance explains"
    assert found["snipe"]["odds"][0]["poll_every_s"] == 30


def test_a_price_that_hardly_moves_says_buy_now(shell: Shell) -> None:
    ran = shell("advise", "H200 SXM", "--data", PRIME, "--since", "all")
    assert ran.code == 0
    assert "BUY NOW: the price is at or under the limit\n" in ran.out
    assert ran.out.startswith("Buy now: $2.6675/GPU-h is as low as it is worth waiting for.\n")


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (("A100", "--data", VAST, "--since", "all", "--deadline", "12h"), "72 are required"),
        (("RTX 4090", "--data", PRIME, "--since", "all"), "such offers"),
    ],
)
def test_too_little_is_exit_3(shell: Shell, argv: tuple[str, ...], reported: str) -> None:
    ran = shell("advise", *argv)
    assert ran.code == 3
    assert ran.out.startswith("Cannot tell: not enough data in ")
    assert reported in ran.out
    found = shell("advise", *argv, "--json")
    assert (found.code, found.json["enough_data"], found.json["verdict"]) == (3, False, None)


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (("H1000", "--data", PRIME), "unknown GPU 'H1000'"),
        (("H100", "--deadline", "soon"), "expected a duration"),
        (("H100", "--deadline", "0s"), "above 0"),
        (("H100", "--deadline", "31d"), "at most 30d"),
        (("H100", "--hours", "0"), "not in the range"),
        (("H100", "--under", "-1"), "not in the range"),
        (("H100", "--data", "nowhere.csv"), "nowhere.csv"),
        (("H100", "--since", "yesterday"), "expected a duration"),
    ],
)
def test_what_makes_no_sense_is_exit_2(shell: Shell, argv: tuple[str, ...], reported: str) -> None:
    ran = shell("advise", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert reported in ran.err
    assert "Traceback" not in ran.err


def test_without_a_store_it_is_one_line(shell: Shell) -> None:
    ran = shell("advise", "H100")
    assert (ran.code, ran.out) == (3, "")
    assert len(ran.err.splitlines()) == 1


def test_what_the_store_saw_long_ago_is_not_the_price_now(shell: Shell) -> None:
    shell("import", PRIME)
    old = shell("advise", "H100 SXM", "--since", "all", "--json").json
    assert (old["verdict"], old["now_usd_gpu_hour"], old["saving"]["saving_usd"]) == ("wait", None, None)
    assert old["why"].startswith("the newest poll is ")
    then = shell("advise", "H100 SXM", "--since", "all", "--until", "2025-11-03", "--json").json
    assert then["now_usd_gpu_hour"] is not None


def test_snipe_odds_of_offers_that_come_and_go(shell: Shell) -> None:
    """An offer lasting 20 minutes every other hour, in a file with a poll every 10 minutes."""
    path = shell.folder / "come-and-go.csv.gz"
    start = datetime(2026, 3, 1, tzinfo=UTC)
    with gzip.open(path, "wt", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS.split(","))
        for look in range(6 * 24 * 20):
            at = (start + look * timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
            out.writerow((at, "vastai", "1/ondemand", "", "H100 SXM", 1, 80, "false", "3.00"))
            if look % 12 < 2:
                out.writerow((at, "vastai", "2/ondemand", "", "H100 SXM", 1, 80, "false", "1.00"))
    argv = ("advise", "H100 SXM", "--data", str(path), "--since", "all", "--under", "1.5", "--json")
    found = shell(*argv, "--poll-every", "40m").json["snipe"]
    assert found["median_life_s"] == pytest.approx(1200, abs=300)
    assert found["a_day"] == pytest.approx(12, abs=0.2)
    whole, half = (one["chance"] for one in found["odds"])
    assert (whole, half) == (pytest.approx(0.5, abs=0.1), pytest.approx(1.0, abs=0.1))
    assert found["looks_apart_s"] == 600


# --- check ------------------------------------------------------------------------------------------------------------

AUTO = """
[[watch]]
name = "hunt"
gpu = "H100 SXM"
max_price = "auto"
max_price_cap = 3.50
deadline = "2d"
"""


@pytest.fixture
def seen(shell: Shell, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A store with 2.40 in six hours of each day, and 3.00 in the others, up to now."""
    monkeypatch.setenv("GPUWATCH_DATABASE_URL", sqlite_database.url)
    history, now = SqlHistoryRecorder(sqlite_database), real_now()
    for hour in range(24 * 10, 0, -1):
        at = now - hour * H
        offer = an_offer(quoted_usd_hour=2.0 if hour % 24 < 6 else 2.5, observed_at=at, disk_usd_gb_month=None)
        history.record(an_answer(offer, at=at, completeness=Completeness.COMPLETE), lane="sweep", gpu="", spot=False)
    return sqlite_database


def test_check_shows_the_limit_in_force(shell: Shell, seen: Database, market: Marketplace) -> None:
    shell.settings(AUTO)
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.50)
    above = shell("check", "--json")
    (watch,) = above.json["watches"]
    assert (above.code, watch["matched"]) == (1, False)
    assert 2.4 <= watch["max_price"] < 3.0
    assert (watch["auto"]["max_price_cap"], watch["auto"]["why_none"]) == (3.5, None)
    assert watch["auto"]["deadline"].endswith("Z")
    assert "/GPU-h now (from the history: optimal stopping; it cost less than" in above.err
    assert watch["auto"]["rule"] == "optimal stopping"
    market.publish(gpu="H100 SXM", count=1, usd_hour=1.90)
    assert shell("check").code == 0


def test_check_heeds_the_record_that_the_daemon_heeds(shell: Shell, seen: Database, market: Marketplace) -> None:
    """Optimal stopping cost more than the fixed median would have, so the limit is that of a simple rule."""
    shell.settings(AUTO)
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.50)
    ledger = SqlForecasts(seen, {})
    for number in range(8):
        at = real_now() - timedelta(days=3 * number + 3)
        made = PriceForecast(
            forecast_id=f"f{number}", source=ForecastSource.AUTO, made_at=at, due_at=at + timedelta(days=2),
            scope=MarketFilter(gpus=("H100 SXM",)), watch="hunt", rule="optimal stopping", verdict=None, now_usd=None,
            limits_usd=(None,) * 49, median_usd=3.0,
        )  # fmt: skip
        ledger.add(made)
        score = ForecastScore(outcome=ForecastOutcome.BOUGHT, paid_usd=3.0, median_paid_usd=2.0)
        ledger.save_score(made.forecast_id, score)
    ran = shell("check", "--json")
    (watch,) = ran.json["watches"]
    assert (watch["max_price"], watch["auto"]["rule"]) == (3.0, "fixed median")
    assert "optimal stopping is not used, based on the record of earlier forecasts" in ran.err


def test_check_begins_the_wait_and_no_store_does_not(shell: Shell, seen: Database, market: Marketplace) -> None:
    shell.settings(AUTO)
    shell("check", "--no-store")
    later = real_now() + timedelta(days=3)
    waits = SqlAutoPriceWaits(seen, {"vastai": Commission("0.20")}, may_write=False)
    watch = a_watch(name="hunt")
    assert waits.wait_started_at(watch, later) is None
    shell("check")
    assert waits.wait_started_at(watch, later) is not None


def test_check_near_the_deadline_takes_the_cap(shell: Shell, seen: Database, market: Marketplace) -> None:
    at = (real_now() + timedelta(minutes=20)).strftime("%Y-%m-%dT%H:%M:%SZ")
    shell.settings(AUTO.replace('"2d"', at))
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.90)
    ran = shell("check", "--json")
    assert (ran.code, ran.json["watches"][0]["max_price"]) == (0, 3.5)


def test_check_without_a_history_takes_the_cap_and_says_why(shell: Shell, market: Marketplace) -> None:
    shell.settings(AUTO)
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.90)
    for argv in (("check", "--no-store"), ("check",)):
        ran = shell(*argv, "--json")
        assert (ran.code, ran.json["watches"][0]["max_price"]) == (0, 3.5)
        assert ran.json["watches"][0]["auto"]["why_none"]
        assert "Traceback" not in ran.err


def test_on_a_terminal_it_is_the_same(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are created by another way there, which must know them, too."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    ran = shell("advise", "H100", "--count", "8", "--data", PRIME)
    assert ran.code == 0
    assert "buy at or under" in ran.out


# --- slow markets -----------------------------------------------------------------------------------------------------

WEEKLY = str(SERIES / "gcp-weekly-2022-02_2024-12.csv.gz")
CARDS = str(SERIES / "aws-ondemand-us-east-1-2022-07_2024-12.csv.gz")


@pytest.mark.parametrize("path", [WEEKLY, CARDS])
def test_a_rate_card_has_an_answer_by_the_week(shell: Shell, path: str) -> None:
    found = shell("advise", "A100", "--data", path, "--since", "all", "--json")
    assert (found.code, found.json["enough_data"], found.json["verdict"]) == (0, True, "buy_now")
    assert (found.json["step"], found.json["deadline_hours"], found.json["judged_hours"]) == ("week", 48, 168)
    assert [one["hours_left"] for one in found.json["limits"]] == [168, 0]
    ran = shell("advise", "A100", "--data", path, "--since", "all")
    assert "step       one week: the polls are too sparse for hourly steps; a wait of 7d is assessed" in ran.out
    assert " polled weeks of " in ran.out


def a_poll_a_day(path: Path, days: int, gone_after: int) -> None:
    """One offer at 3.00, at 2.00 on every third day; nothing after some days."""
    start = datetime(2026, 3, 1, 9, tzinfo=UTC)
    with path.open("w", encoding="utf-8") as file:
        file.write(COLUMNS + "\n")
        for day in range(days):
            at = f"{start + timedelta(days=day):%Y-%m-%dT%H:%M:%SZ}"
            file.write(f"{at},lambda,2/ondemand,,L40S,1,48,false,1.50\n")
            if day < gone_after:
                file.write(f"{at},lambda,1/ondemand,,H100 SXM,1,80,false,{2 if day % 3 == 0 else 3}.00\n")


def test_a_market_polled_once_a_day_has_an_answer_by_the_day(shell: Shell) -> None:
    path = shell.folder / "daily.csv"
    a_poll_a_day(path, days=60, gone_after=60)
    found = shell("advise", "H100 SXM", "--data", str(path), "--since", "all", "--deadline", "4d", "--json").json
    assert (found["step"], found["judged_hours"], found["samples"]) == ("day", 96, 60)
    assert (found["now_usd_gpu_hour"], found["since"]) == (3.0, "2026-03-01T09:00:00Z")
    assert found["until"] <= "2026-04-29T12:00:00Z", "nothing is said about the time after the last poll counts"
    assert found["limit_usd_gpu_hour"] < 3.0


def test_on_a_slow_market_an_offer_that_is_gone_is_not_on_offer_now(shell: Shell) -> None:
    path = shell.folder / "daily.csv"
    a_poll_a_day(path, days=60, gone_after=59)
    found = shell("advise", "H100 SXM", "--data", str(path), "--since", "all", "--deadline", "4d", "--json").json
    assert (found["verdict"], found["now_usd_gpu_hour"]) == ("wait", None)
