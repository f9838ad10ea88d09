"""The log alone explains why gpuwatch sees nothing: the real daemon, with and without a market."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for
from tests.telegram_double import telegram

pytestmark = pytest.mark.slow
DEAD = "http://127.0.0.1:1"


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=40, delays=Delays(running_s=0.5)) as opened:
        yield opened


def lines(home: Home, *levels: str) -> list[dict[str, Any]]:
    """Return the lines of the log so far, without an incomplete last one."""
    log = home.folder / "log.txt"
    if not log.exists():
        return []
    records = [json.loads(line) for line in log.read_text().split("\n")[:-1] if line.startswith("{")]
    return [record for record in records if not levels or record["level"] in levels]


def messages(home: Home, *levels: str) -> list[str]:
    return [record["message"] for record in lines(home, *levels)]


def test_a_start_without_a_watch_and_without_a_channel_says_so(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    (tmp_path / "gpuwatch.toml").write_text(f'[providers.vastai]\nbase_url = "{market.url}"\n')
    with home.daemon() as child:
        wait_for(lambda: "watching" in messages(home))
        assert terminate(child)[0] == 0
    no_watch = [text for text in messages(home, "warning") if "there is no [[watch]]" in text]
    no_channel = [text for text in messages(home, "warning") if "no channel is configured" in text]
    assert (len(no_watch), len(no_channel)) == (1, 1)
    assert str(tmp_path / "gpuwatch.toml") in no_watch[0]
    assert "except for jobs" in no_watch[0]
    assert "gpuwatch alerts test" in no_channel[0]


def test_a_start_with_both_warns_of_neither(market: Marketplace, tmp_path: Path) -> None:
    channel = '[notify.telegram]\nbot_token = "123456:abcdefghijklmnopqrstuvwxyz"\nchat_id = "1"\nbase_url = "' + DEAD
    home = Home(tmp_path, market.url, action="alert", extra=f'{channel}"\n')
    with home.daemon() as child:
        wait_for(lambda: "watching" in messages(home))
        assert terminate(child)[0] == 0
    assert not any("[[watch]]" in text or "no channel" in text for text in messages(home, "warning"))


def test_without_a_channel_the_log_has_each_alert_once_and_whole(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, action="alert")
    bargain(market)
    with home.daemon() as child:
        wait_for(lambda: [record for record in lines(home, "info") if record.get("kind") == "match"])
        assert terminate(child)[0] == 0
    with home.daemon() as child:
        wait_for(lambda: messages(home).count("watching") == 2)
        assert terminate(child)[0] == 0
    stored = json.loads(home.run("alerts", "--kind", "match", "--json").stdout)
    logged = [record for record in lines(home) if record.get("kind") == "match"]
    assert sorted(record["alert_id"] for record in logged) == sorted(event["alert_id"] for event in stored)
    first, text = logged[0], "\n".join([logged[0]["message"], *logged[0]["details"]])
    assert first["message"] == stored[0]["headline"]
    assert all(value in text for value in stored[0]["facts"].values())
    assert stored[0]["delivered"] == {}
    assert "gpuwatch check" in text


def test_a_start_waits_for_the_first_list_of_instances_before_it_says_that_nothing_is_rented(
    market: Marketplace, tmp_path: Path
) -> None:
    """Until then nothing can be rented: an alert would report that, and the next one, 3 s later, the opposite."""
    home = Home(tmp_path, market.url)
    market.faults.add("list", "slow", times=1, delay_s=1.5)
    bargain(market)
    with home.daemon() as child:
        wait_for(lambda: [text for text in messages(home, "info") if text == "cheap: running"])
        assert terminate(child)[0] == 0
    first = next(record for record in lines(home) if record.get("kind") == "match")
    assert "Renting it now" in str(first["details"])
    assert "still looking up" not in home.log()


@pytest.mark.parametrize(("request_kind", "fault"), [("list", "502"), ("user", "500")])
def test_a_list_or_an_account_that_does_not_come_is_named_as_the_reason(
    market: Marketplace, tmp_path: Path, request_kind: str, fault: str
) -> None:
    """The instances of an unknown account are unknown: nothing is rented with it, however long that lasts."""
    home = Home(tmp_path, market.url)
    market.faults.add(request_kind, fault, times=None)
    bargain(market)
    with home.daemon() as child:
        wait_for(lambda: "still looking up" in home.log())
        assert terminate(child)[0] == 0
    assert market.ledger.creates == ()


# --- a provider that cannot be reached -------------------------------------------------------------------------------
def test_a_dead_port_is_one_warning_with_host_and_cause_and_an_error_when_blind(tmp_path: Path) -> None:
    """With the settings of `gpuwatch init --full`, which name no channel; only the times are shorter."""
    home = Home(tmp_path, DEAD)
    (tmp_path / "gpuwatch.toml").unlink()
    assert home.run("init", "--full").returncode == 0
    quick = {"BASE_URL": DEAD, "POLL_EVERY": "1s", "SEARCH_INTERVAL": "0.05s", "TIMEOUT": "1s"}
    env = {f"GPUWATCH_PROVIDERS__VASTAI__{name}": value for name, value in quick.items()}
    env["GPUWATCH_DATABASE_URL"] = home.database_url
    with home.daemon(**env) as child:
        wait_for(lambda: any("no complete answer for" in text for text in messages(home, "error")))
        wait_for(lambda: len(failed_polls(home)) > 6)
        assert terminate(child)[0] == 0
    first = [text for text in messages(home, "warning") if "vastai is not answering" in text]
    assert len(first) == 1
    assert "127.0.0.1:1" in first[0]
    assert "refused" in first[0]
    (blind,) = lines(home, "error")
    assert (blind["kind"], blind["subject"]) == ("blind", "vastai")
    assert any("refused" in text for text in blind["details"])


def test_its_return_is_one_line(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, action="alert", extra='timeout = "1s"\n')
    market.faults.add("search", "502", times=None)
    with home.daemon() as child:
        wait_for(lambda: any("vastai is not answering" in text for text in messages(home, "error")))
        market.faults.clear()
        wait_for(lambda: any("answers again, after" in text for text in messages(home, "info")))
        terminate(child)
    assert len([text for text in messages(home, "info") if "answers again, after" in text]) == 1


# --- a changed format ------------------------------------------------------------------------------------------------
def test_a_renamed_price_is_reported_at_once_while_hunts_come_back_empty(market: Marketplace, tmp_path: Path) -> None:
    """No offer is under the threshold: hunts return no rows, and are complete. No row of the sweep is usable."""
    with telegram() as double:
        home = Home(tmp_path, market.url, action="alert", extra=notify_by(double))
        file = tmp_path / "gpuwatch.toml"
        file.write_text(file.read_text().replace("max_price = 2.40", "max_price = 0.01"))
        with home.daemon() as child:
            wait_for(lambda: {"hunt", "sweep"} <= {poll.lane for poll in polls(home)})
            market.faults.add("search", "renamed", times=None)
            wait_for(lambda: any("vastai is not understood" in one.text for one in double.shown))
            standing = json.loads(home.run("providers", "--json").stdout)[0]
            screen, doctor = home.run("providers").stdout, home.run("doctor").stdout
            market.faults.clear()
            wait_for(lambda: any("is understood again" in one.text for one in double.shown))
            market.faults.add("search", "renamed", times=None)
            wait_for(lambda: sum("price field gone" in one.text for one in double.shown) >= 2)  # it counts as new again
            terminate(child)
    assert not any(poll.rows for poll in polls(home) if poll.lane == "hunt" and poll.completeness == "complete")
    blind, recovered, *rest = double.shown
    assert all(fact in blind.text for fact in ("vastai is not understood", "price field gone: dph_total"))
    assert "is understood again" in recovered.text
    assert len(rest) == 1  # one message for one cause
    assert standing["status"] == "blind"
    assert standing["lanes"]["hunt"]["blind_since"] is None
    assert "dph_total: missing" in standing["lanes"]["sweep"]["last_error"]
    assert "BLIND   sweep since" in screen
    assert "answers hunt" in screen
    assert "(sweep)" in next(line for line in doctor.splitlines() if "blind since" in line)
    assert severities(home)["blind"] == "critical"


class Poll(NamedTuple):
    lane: str
    rows: int
    completeness: str


def polls(home: Home) -> list[Poll]:
    """Return every search that the daemon has recorded."""
    return [Poll(*row) for row in query(home, "SELECT lane, rows, completeness FROM poll")]


def failed_polls(home: Home) -> list[Poll]:
    return [poll for poll in polls(home) if poll.completeness == "failed"]


def severities(home: Home) -> dict[str, str]:
    return dict(query(home, "SELECT kind, severity FROM alert"))


def query(home: Home, sql: str) -> list[Any]:
    file = home.database_url.removeprefix("sqlite:///")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchall()
    except sqlite3.OperationalError:  # the daemon has not created it yet
        return []
