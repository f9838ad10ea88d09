"""The real daemon stops machines with their disks kept, starts them again, and destroys the disks at their end."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.domain.launches.instances.obligation import encode_line, read_obligation_lines
from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.storage.launches.obligation_file import FILE_NAME
from tests.process.audit import Audit, Limits, launches
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for
from tests.telegram_double import TelegramDouble

pytestmark = pytest.mark.slow

DIED = 86


@pytest.fixture
def market() -> Iterator[Marketplace]:
    delays = Delays(running_s=0.1, start_s=0.1)
    with Marketplace(seed=5, key="demo-key", size=0, delays=delays) as opened:
        bargain(opened)
        yield opened


def keeping(keep: str) -> str:
    """Return an action with the keys that keep the disk of its launches."""
    return f'launch"\non_end = "stop"\nkeep_disk_for = "{keep}"\nprefer = "cheapest-gpu'


def running_id(home: Home) -> str:
    """Wait for a running launch; return its id."""
    wait_for(lambda: home.states() == ["running"])
    (row,) = launches(home.database_url)
    return str(row["launch_id"])


def kept(home: Home) -> dict[str, Any]:
    """What its row says about its disk."""
    return dict(json.loads(launches(home.database_url)[0]["kept"] or "{}"))


def is_kept(home: Home) -> bool:
    return launches(home.database_url)[0]["condition"] == "stopped" and "stopped_at" in kept(home)


def status(market: Marketplace) -> list[str]:
    return [one["intended_status"] for one in market.instances()]


def rate(market: Marketplace) -> float:
    """What the marketplace really bills now, USD per hour."""
    return float(market.ledger.burn_usd_hour())


def faults(market: Marketplace, home: Home, double: TelegramDouble | None = None) -> list[str]:
    return Audit(market, home.database_url, {"cheap": Limits()}, double).faults()


def test_by_hand_it_stops_costs_its_disk_starts_and_ends(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, extra=notify_by(double))
    with home.daemon() as child:
        launch_id = running_id(home)
        done = home.run("launches", "stop", launch_id, "--keep-disk", "--for", "2d")
        assert done.returncode == 0, done.stderr
        assert "stopped, disk kept" in done.stdout
        assert status(market) == ["stopped"]
        (shown,) = home.launches()
        assert (shown["state"], shown["condition"], shown["disk_kept"]) == ("running", "stopped", "stopped")
        disk = market.instances()[0]["storage_total_cost"]
        assert rate(market) == pytest.approx(disk)
        assert shown["disk_usd_day"] == pytest.approx(disk * 24 * 1.2, rel=0.01)
        wait_for(lambda: "its disk is kept until" in "\n".join(message.text for message in double.shown))
        assert home.run("launches", "stop", launch_id, "--keep-disk").returncode == 0, "twice changes nothing"
        market.ends(market.instances()[0]["id"], after_s=3600.0)
        done = home.run("launches", "start", launch_id, "--for", "2h")
        assert done.returncode == 2
        assert "its contract at vastai ends at" in done.stderr
        market.ends(market.instances()[0]["id"], after_s=86_400.0)
        done = home.run("launches", "start", launch_id, "--for", "2h")
        assert done.returncode == 0, done.stderr
        assert status(market) == ["running"]
        assert rate(market) > disk
        assert home.launches()[0]["disk_kept"] is None
        assert home.run("launches", "stop", launch_id).returncode == 0
        assert market.instances() == []
        assert terminate(child)[0] == 0
    assert faults(market, home, double) == []


def test_a_start_whose_gpus_are_taken_waits_and_says_so(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, extra=notify_by(double))
    with home.daemon() as child:
        launch_id = running_id(home)
        assert home.run("launches", "stop", launch_id, "--keep-disk").returncode == 0
        instance = market.instances()[0]
        market.occupy(instance["id"])
        done = home.run("launches", "start", launch_id, GPUWATCH_TEST_PACE="20")
        assert done.returncode == 3, done.stderr
        assert "rented to another" in done.stderr
        wait_for(lambda: "its GPUs are rented to another" in "\n".join(message.text for message in double.shown))
        assert home.launches()[0]["disk_kept"] == "starting"
        market.give_back(instance["machine_id"])  # its start begins
        wait_for(lambda: home.launches()[0]["disk_kept"] is None)
        assert terminate(child)[0] == 0
    assert faults(market, home, double) == []


def test_at_the_end_of_its_runtime_it_is_stopped_and_at_that_of_its_disk_destroyed(
    market: Marketplace, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, action=keeping("30s"), max_runtime="80s", ready_within="5s")
    with home.daemon() as child:
        wait_for(lambda: home.states() and is_kept(home))
        assert status(market) == ["stopped"]
        wait_for(lambda: home.states() == ["ended"])
        assert market.instances() == []
        assert "keep_disk_for is over" in launches(home.database_url)[0]["end_reason"]
        assert terminate(child)[0] == 0
    assert faults(market, home) == []


def test_after_a_kill_the_keeper_destroys_the_disk_at_its_end(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    with home.daemon() as child:
        assert home.run("launches", "stop", running_id(home), "--keep-disk", "--for", "15s").returncode == 0
        child.kill()
        child.wait()
    assert status(market) == ["stopped"]
    hangs = {"GPUWATCH_FAILPOINT": "reconcile.listed@sleep600", "GPUWATCH_TEST_KEEPER_AFTER": "1"}
    with home.daemon(**hangs):
        wait_for(lambda: not market.instances())
    assert faults(market, home) == []


def go_back(home: Home, by: timedelta) -> None:
    """Let the launch have begun earlier by this, in its row and in the keeper's file, while no daemon runs."""
    columns = ("intended_at_ms", "requested_at_ms", "running_at_ms")
    changes = ", ".join(f"{one} = {one} - {by // timedelta(milliseconds=1)}" for one in columns)
    with closing(sqlite3.connect(home.folder / "gpuwatch.db")) as database, database:
        database.execute(f"UPDATE launch SET {changes}")
    path = home.folder / FILE_NAME
    (one,) = read_obligation_lines(path.read_bytes().splitlines(keepends=True)).open.values()
    assert one.ends_at is not None
    earlier = replace(one, ends_at=one.ends_at - by, ordered_at=one.ordered_at - by)
    path.write_bytes(encode_line(earlier))


def killed_while_it_runs(home: Home) -> None:
    with home.daemon() as child:
        running_id(home)
        wait_for(lambda: b"instance_id" in (home.folder / FILE_NAME).read_bytes())
        child.kill()
        child.wait()


def days_from_start(home: Home) -> float:
    return float(launches(home.database_url)[0]["max_runtime_s"]) / 86_400


def test_an_end_that_passes_while_gpuwatch_is_down_keeps_the_disk_all_the_same(
    market: Marketplace, tmp_path: Path
) -> None:
    """Also if it dies again at its first stop. Its disk is kept from that end on, not from the return on."""
    home = Home(tmp_path, market.url, action=keeping("2d"), max_runtime="2h")
    killed_while_it_runs(home)
    go_back(home, timedelta(hours=5))
    die(home, "launch.before_halt")
    with home.daemon() as child:
        wait_for(lambda: is_kept(home))
        assert (status(market), days_from_start(home)) == (["stopped"], pytest.approx(2 + 2 / 24))
        child.kill()
        child.wait()
    go_back(home, timedelta(days=2))
    with home.daemon():
        wait_for(lambda: home.states() == ["ended"])
    assert market.instances() == []


def test_the_keeper_alone_stops_it_at_its_end_and_the_daemon_takes_that_up(
    market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    home = Home(tmp_path, market.url, action=keeping("2d"), max_runtime="2h", extra=notify_by(double))
    killed_while_it_runs(home)
    go_back(home, timedelta(hours=5))
    for results in (["stopped"], []):
        done = home.run("keep", "--json")
        assert done.returncode == 0, done.stderr
        assert [one["result"] for one in json.loads(done.stdout)["overdue"]] == results
    assert status(market) == ["stopped"]
    assert sum("the keeper stopped it" in message.text for message in double.shown) == 1
    with home.daemon():
        wait_for(lambda: is_kept(home))
        assert (status(market), days_from_start(home)) == (["stopped"], pytest.approx(2 + 2 / 24))
    assert len(market.ledger.creates) == 1


STOPPING = ("launch.before_halt", "launch.after_halt", "running.before_record", "running.after_record")
STARTING = ("launch.before_resume", "launch.after_resume", "running.before_record", "running.after_record")


def test_a_death_at_any_point_of_stop_and_start_is_made_good(market: Marketplace, tmp_path: Path) -> None:
    """Whatever it was about to send or to record, the next daemon does; nothing is doubled, lost or left running."""
    home = Home(tmp_path, market.url)
    with home.daemon() as child:
        launch_id = running_id(home)
        child.kill()
        child.wait()
    for halt, resume in zip(STOPPING, STARTING, strict=True):
        # the command that wrote the wish dies, then a daemon at its point
        asked = home.run("launches", "stop", launch_id, "--keep-disk", GPUWATCH_FAILPOINT="launch.before_halt")
        assert asked.returncode == DIED
        die(home, halt)
        with home.daemon():
            wait_for(lambda: is_kept(home))
        assert (status(market), faults(market, home)) == (["stopped"], [])
        asked = home.run("launches", "start", launch_id, GPUWATCH_FAILPOINT="launch.before_resume")
        assert asked.returncode == DIED
        die(home, resume)
        with home.daemon():
            wait_for(lambda: launches(home.database_url)[0]["kept"] is None)
        assert (status(market), faults(market, home)) == (["running"], [])
    assert len(market.ledger.creates) == 1


def die(home: Home, point: str) -> None:
    """Run a daemon that dies at this point."""
    with home.daemon(GPUWATCH_FAILPOINT=point) as child:
        assert child.wait(timeout=300) == DIED, point
