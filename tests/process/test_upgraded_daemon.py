"""A store of version 0.1 with instances that are rented: upgraded, followed to their end, and put back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData

from gpuwatch.bootstrap import http_client, real_now
from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.ports import Order
from gpuwatch.providers import build
from gpuwatch.settings import load
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import newest_schema, revision
from tests.process.daemon_child import Home, terminate, wait_for
from tests.test_older_store import OLDER, create_older

pytestmark = pytest.mark.slow

LIVING, HELD, UNPROVEN = "b" * 12, "c" * 12, "d" * 12
ENDS_IN_S = 12.0


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=8, odd_rows=False, delays=Delays(running_s=0.2)) as opened:
        yield opened


@pytest.fixture
def home(market: Marketplace, tmp_path: Path) -> Home:
    """One launch runs, one is held although its instance exists, one is held and nobody knows."""
    home = Home(tmp_path, market.url, has_store=False, action="alert")
    living, held = (_instance(home, market, f"gpuwatch-{one}") for one in (LIVING, HELD))
    database = open_database(home.database_url)
    with database.write() as connection:
        create_older(connection)
        _add(connection, LIVING, "running", instance_id=living, offer_id="2001", slot=1)
        _add(connection, HELD, "held", offer_id="2002", slot=2)
        _add(connection, UNPROVEN, "held", offer_id="2003", slot=3)
    database.close()
    assert {str(one["id"]) for one in market.instances()} == {living, held}
    return home


def _instance(home: Home, market: Marketplace, label: str) -> str:
    """Rent one at the marketplace, behind gpuwatch's back."""
    offer_id = str(market.publish(gpu="H100 SXM", count=1, usd_hour=3.0))
    settings = load(env=home.env, cwd=home.folder)
    with http_client(settings) as http:
        launcher = build(settings.providers["vastai"].revealed(), http, real_now, time.monotonic).launcher
        assert launcher is not None
        made = launcher.create(Order(offer_id=offer_id, label=label, image="x/y", disk_gb=8)).instance_id
    assert made is not None
    return made


def _add(connection: Connection, launch_id: str, state: str, **values: Any) -> None:
    """A launch of this version, which ends soon, by the columns that it had."""
    tables = MetaData()
    tables.reflect(connection)
    began_ms = int((time.time() - 3600 + ENDS_IN_S) * 1000)
    row = OLDER["launch"][0] | {"launch_id": launch_id, "label": f"gpuwatch-{launch_id}", "state": state}
    row |= {"instance_id": None, "intended_at_ms": began_ms, "requested_at_ms": began_ms, "running_at_ms": began_ms}
    row |= {} if state == "running" else {"running_at_ms": None}
    connection.execute(tables.tables["launch"].insert(), row | values)
    event = OLDER["launch_event"][0] | {"id": None, "launch_id": launch_id, "at_ms": began_ms, "to_state": state}
    connection.execute(tables.tables["launch_event"].insert(), {k: v for k, v in event.items() if k != "id"})


def _states(home: Home) -> dict[str, str]:
    return {one["launch_id"]: one["state"] for one in home.launches()}


def test_launches_of_an_upgraded_store_are_followed_to_their_end(home: Home, market: Marketplace) -> None:
    upgraded = home.run("upgrade")
    assert upgraded.returncode == 0, upgraded.stderr
    assert f"0004 → {newest_schema()}" in upgraded.stdout
    with home.daemon() as child:
        wait_for(lambda: _states(home)[HELD] == "running")
        assert home.run("launches", "stop", HELD).returncode == 0
        wait_for(lambda: (_states(home)[LIVING], _states(home)[HELD]) == ("ended", "ended"))
        assert market.instances() == []
        assert _states(home)[UNPROVEN] == "held"
        resolved = home.run("launches", "resolve", UNPROVEN, "--absent")
        assert resolved.returncode == 0, resolved.stderr
        wait_for(lambda: _states(home)[UNPROVEN] == "failed")
        assert terminate(child)[0] == 0
    assert len(market.ledger.creates) == 2


def test_the_backup_of_an_upgrade_brings_the_older_store_back(home: Home) -> None:
    before = _rows(home)
    assert home.run("upgrade").returncode == 0
    (backup,) = home.folder.glob("gpuwatch-schema-0004-*.db")
    shutil.copyfile(backup, home.folder / "gpuwatch.db")
    assert _rows(home) == before
    assert home.run("upgrade", "--backed-up").returncode == 0
    assert set(_states(home)) >= {LIVING, HELD, UNPROVEN}


def _rows(home: Home) -> dict[str, list[Any]]:
    database = open_database(home.database_url, read_only=True)
    assert revision(database) == "0004"
    tables = MetaData()
    with database.read() as connection:
        tables.reflect(connection)
        found = {name: sorted(map(repr, connection.execute(table.select()))) for name, table in tables.tables.items()}
    database.close()
    return found
