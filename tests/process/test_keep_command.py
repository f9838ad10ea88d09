"""`gpuwatch keep` after kill -9 of the daemon, and with it of its keeper: what is overdue ends once, with an alert."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.instances.obligation import encode_line, read_obligation_lines
from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.storage.launches.obligation_file import FILE_NAME
from tests.process.daemon_child import Home, bargain, notify_by, wait_for
from tests.telegram_double import TelegramDouble, telegram

pytestmark = pytest.mark.slow  # three answers "gone" follow a destroy, fifteen seconds apart

SOON = {"GPUWATCH_TEST_KEEPER_AFTER": "1"}
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


def killed_daemon(home: Home) -> None:
    """Rent an instance with the daemon, and kill it with its keeper."""
    with home.daemon() as child:
        wait_for(lambda: any(line.get("instance_id") for line in lines(home)))
        child.kill()
        child.wait()


def lines(home: Home) -> list[dict[str, Any]]:
    path = home.folder / FILE_NAME
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def make_overdue(home: Home) -> None:
    """Move the end in the keeper's file into the past, as if the launch were ordered long ago."""
    path = home.folder / FILE_NAME
    (one,) = read_obligation_lines(path.read_bytes().splitlines(keepends=True)).open.values()
    ended = msgspec.structs.replace(one, ends_at=real_now() - timedelta(minutes=5))
    path.write_bytes(encode_line(ended))


def kept(home: Home, code: int) -> dict[str, Any]:
    done = home.run("keep", "--json", **SOON)
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout))


def test_with_nothing_but_the_file_it_ends_what_is_overdue_and_says_so_once(
    market: Marketplace, chat: TelegramDouble, tmp_path: Path
) -> None:
    """No database, and settings that are no TOML: the last valid ones and the key's place are known."""
    home = Home(tmp_path, market.url, extra=notify_by(chat))
    killed_daemon(home)
    assert kept(home, 0)["overdue"] == []
    assert len(market.instances()) == 1
    make_overdue(home)
    for path in home.folder.glob("gpuwatch.db*"):
        path.unlink()
    settings = home.folder / "gpuwatch.toml"
    settings.write_text(settings.read_text() + "max_price = = 3\n")
    done = kept(home, 0)
    assert [(one["watch"], one["result"], one["error"]) for one in done["overdue"]] == [("cheap", "ended", None)]
    assert market.instances() == []
    assert lines(home)[-1]["by_keeper"]
    again = kept(home, 0)
    assert (again["keeper_alive"], again["overdue"]) == (False, [])
    assert sum(OUTLIVED in message.text for message in chat.shown) == 1
    assert not list(home.folder.glob("gpuwatch.db"))  # it creates none


def test_beside_a_living_keeper_it_does_nothing_and_what_cannot_be_ended_is_named(
    market: Marketplace, chat: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, extra=notify_by(chat))
    with home.daemon() as child:
        wait_for(lambda: any(line.get("instance_id") for line in lines(home)))
        assert kept(home, 0)["keeper_alive"]
        child.kill()
        child.wait()
    make_overdue(home)
    home.write(url=market.url, key="another-key", extra=notify_by(chat))
    (failed,) = kept(home, 1)["overdue"]
    assert (failed["result"], bool(failed["error"])) == ("failed", True)
    kept(home, 1)
    assert len(market.instances()) == 1
    assert sum("cannot be destroyed" in message.text for message in chat.shown) == 1  # once an hour, whoever tries


def test_a_later_end_that_the_database_proves_wins(market: Marketplace, tmp_path: Path) -> None:
    """The daemon was killed, and its row was extended by a host whose lines this file never got."""
    home = Home(tmp_path, market.url, max_runtime="2s", ready_within="1s")
    with home.daemon(GPUWATCH_FAILPOINT="reconcile.listed:3@sleep600", GPUWATCH_TEST_KEEPER_AFTER="600") as child:
        line = wait_for(lambda: next((line for line in lines(home) if line.get("instance_id")), None))
        child.kill()
        child.wait()
    before = (home.folder / FILE_NAME).read_bytes()
    extended = home.run("extend", line["launch_id"], "--by", "1h")
    assert extended.returncode == 0, extended.stderr
    (home.folder / FILE_NAME).write_bytes(before)
    ends_at = datetime.fromisoformat(lines(home)[-1]["ends_at"])
    time.sleep(max(0.0, (ends_at - real_now()).total_seconds() + 1.5))
    (one,) = kept(home, 0)["overdue"]
    assert (one["result"], len(market.instances())) == ("extended", 1)
    assert datetime.fromisoformat(lines(home)[-1]["ends_at"]) > real_now()
