"""The keeper in the real daemon: no instance outlives its end, whatever fails. Here it acts a second past the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.storage.launches.obligation_file import FILE_NAME
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for
from tests.process.service_manager import heard_heartbeats
from tests.telegram_double import TelegramDouble, telegram

SOON = {"GPUWATCH_TEST_KEEPER_AFTER": "1"}
HANGS = {"GPUWATCH_FAILPOINT": "reconcile.listed:3@sleep600"}  # the task that follows instances
OUTLIVED = "its instance outlived its end"


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=0, delays=Delays(running_s=0.1)) as opened:
        bargain(opened)
        yield opened


@pytest.fixture
def chat() -> Iterator[TelegramDouble]:
    with telegram() as double:
        yield double


def lines(home: Home) -> list[dict[str, Any]]:
    """The keeper's file."""
    path = home.folder / FILE_NAME
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def texts(chat: TelegramDouble) -> str:
    return "\n".join(message.text for message in chat.shown)


def ruin_database(home: Home) -> None:
    """Leave a file that is not a database."""
    for path in home.folder.glob("gpuwatch.db*"):
        if path.suffix != ".lock":
            path.write_bytes(b"no database" * 500)


def test_a_hung_scheduler_does_not_let_an_instance_outlive_its_end(
    market: Marketplace, chat: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, max_runtime="3s", ready_within="1s", extra=notify_by(chat))
    with home.daemon(**SOON, **HANGS):
        wait_for(market.instances)
        wait_for(lambda: not market.instances())
        wait_for(lambda: OUTLIVED in texts(chat))
    assert texts(chat).count(OUTLIVED) == 1


def test_it_needs_no_list_of_instances(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, max_runtime="3s", ready_within="1s")
    with home.daemon(**SOON, **HANGS):
        wait_for(lambda: any(line.get("instance_id") for line in lines(home)))
        market.faults.add("instances", "never", times=None)
        wait_for(lambda: not market.instances())


def test_a_database_that_is_gone_does_not_let_an_instance_outlive_its_end(
    market: Marketplace, chat: TelegramDouble, tmp_path: Path
) -> None:
    """It keeps running, ends what must end, and stops cleanly: systemd would restart it in vain."""
    home = Home(tmp_path, market.url, max_runtime="3s", ready_within="1s", extra=notify_by(chat))
    with home.daemon(**SOON, **HANGS) as child:
        wait_for(lambda: any(line.get("instance_id") for line in lines(home)))
        child.kill()
        child.wait()
    ruin_database(home)
    with home.daemon(**SOON) as child:
        wait_for(lambda: not market.instances())
        wait_for(lambda: OUTLIVED in texts(chat))
        assert terminate(child)[0] == 0


def test_without_a_database_an_instance_whose_id_was_never_learnt_is_found_by_its_label(
    market: Marketplace, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, max_runtime="2s", ready_within="1s")
    with home.daemon(**SOON, GPUWATCH_FAILPOINT="launch.after_send") as child:
        child.wait(timeout=240)
    assert len(market.instances()) == 1
    assert [line.get("instance_id") for line in lines(home)] == [None]
    ruin_database(home)
    with home.daemon(**SOON):
        wait_for(lambda: not market.instances())


def test_a_key_of_another_account_ends_nothing_and_the_owner_gets_an_alert(
    market: Marketplace, chat: TelegramDouble, tmp_path: Path
) -> None:
    """A 404 under another key would count as the end of an active instance."""
    wanted: dict[str, Any] = {"max_runtime": "2s", "ready_within": "1s", "extra": notify_by(chat)}
    home = Home(tmp_path, market.url, **wanted)
    with home.daemon(**SOON, **HANGS) as child:
        wait_for(lambda: any(line.get("instance_id") for line in lines(home)))
        child.kill()
        child.wait()
    ruin_database(home)
    home.write(url=market.url, **wanted | {"key": "another-key"})
    with home.daemon(**SOON):
        wait_for(lambda: "cannot end launch" in home.log())
    destroys = [seen for seen in market.requests if seen.method == "DELETE"]
    assert (destroys, len(market.instances())) == ([], 1)
    assert [line for line in lines(home) if line.get("is_over")] == []


def test_the_previous_key_ends_what_is_left_under_its_account(market: Marketplace, tmp_path: Path) -> None:
    """The database is gone, so that only the keeper can end it; the new key belongs to another account."""
    wanted: dict[str, Any] = {"max_runtime": "2s", "ready_within": "1s"}
    home = Home(tmp_path, market.url, **wanted)
    with home.daemon(**SOON, **HANGS) as child:
        wait_for(lambda: any(line.get("instance_id") for line in lines(home)))
        child.kill()
        child.wait()
    ruin_database(home)
    home.write(url=market.url, **wanted | {"key": "another-key", "extra": 'previous_api_key = "demo-key"\n'})
    with home.daemon(**SOON):
        wait_for(lambda: not market.instances())


def test_without_a_database_and_with_nothing_to_end_the_start_fails_at_once(
    market: Marketplace, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url)
    ruin_database(home)
    (tmp_path / "gpuwatch.db").write_bytes(b"no database" * 500)
    with home.daemon() as child:
        assert child.wait(timeout=240) == 1


def test_killed_between_the_file_and_the_order_the_next_start_settles_both(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    with home.daemon(GPUWATCH_FAILPOINT="launch.before_send") as child:
        child.wait(timeout=240)
    assert (len(lines(home)), market.instances()) == (1, [])
    market.withdraw(market.offers()[0]["id"])
    with home.daemon(GPUWATCH_TEST_PACE="600"):
        wait_for(lambda: {"failed", "held"} & set(home.states()))
        state = home.launches()[0]["state"]
        assert state == "held" or lines(home)[-1].get("is_over")


def test_what_ended_in_time_is_closed_and_never_reported(
    market: Marketplace, chat: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, max_runtime="3s", ready_within="1s", extra=notify_by(chat))
    with home.daemon(GPUWATCH_TEST_PACE="60"):
        wait_for(lambda: lines(home) and lines(home)[-1].get("is_over"))
    assert OUTLIVED not in texts(chat)
    with home.daemon(GPUWATCH_TEST_PACE="60"):
        wait_for(lambda: home.log().count("watching") == 2)
        assert [line.get("is_over") for line in lines(home)] == [True]  # compacted, and watched for a week


def test_the_heartbeat_starts_with_the_daemon_and_its_address_is_shown_nowhere(
    market: Marketplace, tmp_path: Path
) -> None:
    with heard_heartbeats() as (address, paths):
        home = Home(tmp_path, market.url, extra=f'[watchdog]\nheartbeat_url = "{address}"\n')
        with home.daemon():
            wait_for(lambda: paths)
        shown = home.run("config", "show")
    assert paths[0] == "/start"
    assert "heartbeat_url" in shown.stdout
    assert "secret-of-mine" not in shown.stdout + home.log()
