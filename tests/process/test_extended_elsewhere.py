"""A launch that is extended from another state folder: every keeper gets the later end, and none ends it before."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.storage.launches.obligation_file import FILE_NAME
from tests.process.audit import launches
from tests.process.crash_matrix import somebody_rents
from tests.process.daemon_child import Home, bargain, terminate, wait_for
from tests.process.two_daemons import KEY, home_of

pytestmark = pytest.mark.slow

SOON = {"GPUWATCH_TEST_KEEPER_AFTER": "1"}
RUNTIME_S = 20.0


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key=KEY, size=0, delays=Delays(running_s=0.1)) as opened:
        somebody_rents(opened, KEY)
        yield opened


@pytest.fixture
def homes(tmp_path: Path, market: Marketplace, store_url: str) -> list[Home]:
    """Two hosts with a daemon each, and a third for commands; a state folder each."""
    made = []
    for name in ("a", "b", "c"):
        watches = {"cheap": "H100"} if name != "c" else {}
        made.append(home_of(tmp_path / name, market.url, store_url, watches, max_runtime=f"{RUNTIME_S:.0f}s"))
    return made


def obligation(home: Home) -> dict[str, Any]:
    """The newest line of the host's keeper's file."""
    found = list(home.folder.rglob(FILE_NAME))
    lines = found[0].read_bytes().splitlines() if found else []
    return dict(json.loads(lines[-1])) if lines else {}


def running(home: Home) -> dict[str, Any] | None:
    return next((one for one in home.launches() if one["state"] == "running"), None)


def destroys(market: Marketplace, launch: dict[str, Any]) -> int:
    path = f"/instances/{launch['instance_id']}"
    return sum(seen.method == "DELETE" and path in seen.path for seen in tuple(market.requests))


def sleep_past(launch: dict[str, Any]) -> None:
    """Wait until the keepers would have ended it, had it not been extended."""
    began = datetime.fromisoformat(launch["running_at"])
    time.sleep(max(0.0, RUNTIME_S + 6.0 - (real_now() - began).total_seconds()))


def test_of_twenty_that_are_extended_from_another_folder_none_is_ended(
    tmp_path: Path, market: Marketplace, store_url: str
) -> None:
    runtime_s = (
        90.0  # of each; it is extended as soon as it is created, by a process that a slow machine starts in seconds
    )
    launch = {"max_runtime": f"{runtime_s:.0f}s", "max_active": 20, "max_total": 20}
    a, c = (home_of(tmp_path / name, market.url, store_url, {"cheap": "H100"}, **launch) for name in "ac")
    extended: set[str] = set()

    def extend_each() -> bool:
        found = [one["launch_id"] for one in launches(store_url) if one["state"] in {"starting", "running"}]
        new = [launch_id for launch_id in found if launch_id not in extended]
        with ThreadPoolExecutor(4) as pool:
            done = pool.map(lambda launch_id: c.run("extend", launch_id, "--by", "1h"), new)
        assert [one.stderr for one in done if one.returncode] == []
        extended.update(new)
        return len(extended) == 20

    with a.daemon(**SOON) as child:
        for n in range(20):
            bargain(market, 1.0 + n / 100)
        wait_for(extend_each, every_s=0.5)
        wait_for(lambda: [one["state"] for one in launches(store_url)] == ["running"] * 20, every_s=0.5)
        began = max(datetime.fromisoformat(one["running_at"]) for one in c.launches())
        time.sleep(max(0.0, runtime_s + 6.0 - (real_now() - began).total_seconds()))
        assert not [seen.path for seen in tuple(market.requests) if seen.method == "DELETE"]
        assert [one["state"] for one in launches(store_url)] == ["running"] * 20
        assert terminate(child)[0] == 0
    assert "outlived" not in a.log()


def test_no_keeper_ends_at_the_old_end_what_another_host_extended(market: Marketplace, homes: list[Home]) -> None:
    a, b, c = homes
    with a.daemon(**SOON) as first, b.daemon(**SOON) as second:
        bargain(market)
        launch = wait_for(lambda: running(c))
        assert c.run("extend", launch["launch_id"], "--by", "1h").returncode == 0
        sleep_past(launch)
        assert destroys(market, launch) == 0
        ends = {obligation(home)["ends_at"] for home in homes}
        assert len(ends) == 1
        assert datetime.fromisoformat(ends.pop()) > real_now()
        assert c.run("stop", launch["launch_id"], "--yes").returncode == 0
        wait_for(lambda: all(obligation(home).get("is_over") for home in homes))
        time.sleep(2)
        assert [terminate(child)[0] for child in (first, second)] == [0, 0]
    assert "outlived" not in a.log() + b.log()


def test_a_keeper_that_starts_after_the_old_end_asks_the_database_first(market: Marketplace, homes: list[Home]) -> None:
    a, _, c = homes
    with a.daemon(**SOON) as child:
        bargain(market)
        launch = wait_for(lambda: running(c))
        wait_for(lambda: obligation(a).get("instance_id"))
        assert terminate(child)[0] == 0
    assert c.run("extend", launch["launch_id"], "--by", "1h").returncode == 0
    sleep_past(launch)
    with a.daemon(**SOON) as child:
        wait_for(lambda: "was extended from elsewhere" in a.log())
        time.sleep(3)
        assert (destroys(market, launch), running(c) is not None) == (0, True)
        assert terminate(child)[0] == 0
