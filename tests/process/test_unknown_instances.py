"""Instances with gpuwatch's label that a database lacks: the real daemon rents nothing beside them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.audit import rows
from tests.process.daemon_child import Home, bargain, terminate, wait_for, wait_for_searches

pytestmark = pytest.mark.slow


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=40, delays=Delays(running_s=0.3)) as opened:
        yield opened


def running(home: Home) -> list[dict[str, Any]]:
    return [launch for launch in home.launches() if launch["state"] == "running"]


def rent_and_end(home: Home, market: Marketplace) -> None:
    """Rent once before, so that its database is not new."""
    bargain(market)
    with home.daemon() as child:
        launch = wait_for(lambda: running(home))[0]
        assert home.run("stop", launch["launch_id"]).returncode == 0
        assert terminate(child)[0] == 0


def rent(home: Home, market: Marketplace) -> dict[str, Any]:
    bargain(market)
    with home.daemon() as child:
        launch = wait_for(lambda: running(home))[0]
        assert terminate(child)[0] == 0
    return dict(launch)


def test_a_restored_backup_rents_nothing_beside_what_it_does_not_know(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url)
    rent_and_end(home, market)
    assert home.run("store", "backup", str(tmp_path / "backup.db")).returncode == 0
    home.write(url=market.url, max_total=2)
    lost = rent(home, market)
    for name in ("gpuwatch.db-wal", "gpuwatch.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copyfile(tmp_path / "backup.db", tmp_path / "gpuwatch.db")
    bargain(market, 1.2)
    with home.daemon() as child:
        wait_for(lambda: rows(home.database_url, "SELECT 1 FROM unknown_instance"))
        wait_for_searches(market, 4)
        assert len(market.ledger.creates) == 2
        assert home.run("adopt", lost["instance_id"]).returncode == 0
        [adopted] = [launch for launch in home.launches() if launch["instance_id"] == lost["instance_id"]]
        assert adopted["launch_id"] == lost["launch_id"]
        assert adopted["watch_id"] == lost["watch_id"]
        wait_for_searches(market, 4)
        assert len(market.ledger.creates) == 2  # max_active = 1 counts the adopted one
        assert terminate(child)[0] == 0


def test_a_second_installation_rents_nothing_until_the_other_one_is_known(market: Marketplace, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    mine, other = (Home(folder, market.url) for folder in folders)
    rent_and_end(mine, market)
    theirs = rent(other, market)
    mine.write(url=market.url, max_total=2)
    bargain(market, 1.2)
    with mine.daemon() as child:
        wait_for(lambda: rows(mine.database_url, "SELECT 1 FROM unknown_instance"))
        wait_for_searches(market, 4)
        assert len(market.ledger.creates) == 2
        assert mine.run("adopt", theirs["instance_id"], "--not-mine").returncode == 0
        wait_for(lambda: len(market.ledger.creates) == 3)
        assert terminate(child)[0] == 0
    assert {launch["install_id"] for launch in mine.launches()}.isdisjoint({theirs["install_id"]})
