"""`gpuwatch forecasts advise --record` stores its forecasts, and `scores` compares them with later prices."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from gpuwatch.app.forecasts.advise import forecast_of
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.forecasts.advice import advise
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.history.price_series import known_until, series_of
from gpuwatch.storage.forecasts.forecast_rows import SqlForecasts
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.setup.database import open_database
from tests.cli.conftest import Shell

COLUMNS = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
H = timedelta(hours=1)
SCOPE = MarketFilter(gpus=("H100 SXM",))
DAYS = 40


@pytest.fixture
def now() -> datetime:
    return real_now().replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def prices(shell: Shell, now: datetime) -> Path:
    """One H100 polled every hour for 40 days, listed: in every 24 hours 2.00 for fourteen, then 3.00 for ten.

    Counted back from `now`, so that the answer does not depend on the hour at which the test runs.
    """
    path = shell.folder / "prices.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS.split(","))
        for hour in range(DAYS * 24, -1, -1):
            at = now - hour * H
            usd = "2.00" if -hour % 24 < 14 else "3.00"
            out.writerow(
                (at.strftime("%Y-%m-%dT%H:%M:%SZ"), "vastai", "1/ondemand", "", "H100 SXM", 1, 80, "false", usd)
            )
    assert shell("import", str(path)).code == 0
    return path


def states_at(now: datetime, *hours_ago: int, deadline_h: int = 24) -> None:
    """Forecasts as `advise --record` would have made them at these times."""
    settings = load_settings(None)
    store = open_database(settings.database_url)
    ledger = SqlForecasts(store, {name: provider.commission for name, provider in settings.providers.items()})
    for number, hours in enumerate(hours_ago):
        at = now - hours * H + timedelta(minutes=5)
        history = read_market_history(store, SCOPE, at - timedelta(days=30), at)
        series = series_of(history, lambda _, one: one.machine_microusd_hour * 1.2)
        advice = advise(known_until(series, at), deadline_h)
        ledger.add(forecast_of(advice, SCOPE, at, f"f{number}"))
    store.close()


@pytest.mark.usefixtures("prices")
def test_what_is_stated_now_is_kept_and_open(shell: Shell) -> None:
    ran = shell("advise", "H100 SXM", "--deadline", "1d", "--record", "--json")
    assert ran.code == 0
    assert ran.json["forecast_id"]
    found = shell("scores", "--json").json["sources"]
    assert list(found) == ["advise"]
    assert (found["advise"]["forecasts"], found["advise"]["open"], found["advise"]["scored"]) == (1, 1, 0)
    text = shell("scores")
    assert "1 forecasts; 0 scored" in text.out
    assert "Recorded as forecast" in shell("advise", "H100 SXM", "--deadline", "1d", "--record").out


@pytest.mark.usefixtures("prices")
def test_without_record_nothing_is_kept(shell: Shell) -> None:
    assert shell("advise", "H100 SXM", "--deadline", "1d").code == 0
    ran = shell("scores")
    assert (ran.code, ran.out.startswith("No forecasts yet")) == (0, True)
    assert shell("scores", "--json").json["sources"] == {}


@pytest.mark.usefixtures("prices")
def test_what_is_due_is_compared_with_what_came_true(shell: Shell, now: datetime) -> None:
    states_at(now, *(30 + 25 * number for number in range(10)))
    found = shell("scores", "--json").json["sources"]["advise"]
    assert (found["forecasts"], found["scored"], found["open"], found["unknown"]) == (10, 10, 0, 0)
    assert (found["bought"], found["missed"], found["independent"]) == (10, 0, 10)
    assert found["calibration"][0]["samples"] == 10
    assert found["calibration"][0]["reached"] == 1.0, "every wait of a day meets the night"
    assert found["against_buy_now"]["saved"] > 0
    assert found["saving"]["samples"] <= 10
    text = shell("scores").out
    assert text.startswith("Following 10 scored forecasts paid off: +")
    assert "forecast 50%: observed 100% (n = 10)" in text
    assert "Assumed: " not in text
    assert "Assumed: " in shell("scores", "--method").out


def test_a_deadline_that_nobody_saw_is_unknown(shell: Shell, prices: Path, now: datetime) -> None:
    states_at(now, 100)
    store = open_database(load_settings(None).database_url)
    with store.write() as connection:  # no polls around that deadline
        deadline_s = int((now - 76 * H).timestamp())
        connection.exec_driver_sql(
            f"DELETE FROM poll WHERE at_s BETWEEN {deadline_s - 5 * 3600} AND {deadline_s + 5 * 3600}"
        )
        first_day, last_day = (at_s // 86_400 for at_s in (deadline_s - 5 * 3600, deadline_s + 5 * 3600))
        connection.exec_driver_sql(f"DELETE FROM poll_day WHERE day BETWEEN {first_day} AND {last_day}")
    store.close()
    found = shell("scores", "--json").json["sources"]["advise"]
    assert (found["unknown"], found["scored"]) == (1, 0)
    assert "1 unknown (not polled at the deadline)" in shell("scores").out


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize("argv", [("--until", "2026-01-01"), ("--data", "prices.csv")])
def test_only_what_is_stated_of_the_time_from_now_on_is_kept(shell: Shell, argv: tuple[str, str]) -> None:
    ran = shell("advise", "H100 SXM", "--record", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert "omit --data and --until" in ran.err


@pytest.mark.usefixtures("prices")
def test_a_bad_record_shrinks_the_next_promise(shell: Shell, now: datetime) -> None:
    plain = shell("advise", "H100 SXM", "--deadline", "1d", "--json").json
    store = open_database(load_settings(None).database_url)
    settings = load_settings(None)
    ledger = SqlForecasts(store, {name: provider.commission for name, provider in settings.providers.items()})
    for number in range(16):  # stated as half, at limits that were never met
        at = now - (30 + 25 * number) * H
        history = read_market_history(store, SCOPE, at - timedelta(days=30), at)
        advice = advise(known_until(series_of(history, lambda _, one: one.machine_microusd_hour * 1.2), at), 24)
        made = forecast_of(advice, SCOPE, at, f"bad{number}")
        ledger.add(
            msgspec.structs.replace(
                made, saving_share=0.5, saving_low=0.4, saving_high=0.6, rule="optimal stopping",
                limits_usd=(None, *[0.01] * 24),
            )
        )  # fmt: skip
    store.close()
    shrunk = shell("advise", "H100 SXM", "--deadline", "1d", "--json").json
    record = shrunk["record"]
    assert record["saving"]["shrink"] < 1
    assert not record["optimal_stopping_against_fixed_median"]["trusted"]
    assert shrunk["rule"] in {"fixed median", "buy at once"}
    if plain["saving"] and shrunk["saving"]:
        assert shrunk["saving"]["share"] <= plain["saving"]["share"]
    assert "earlier forecasts, savings are scaled to" in shell("advise", "H100 SXM", "--deadline", "1d").out
