"""Which tasks a standby runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuwatch.bootstrap import lease_clock
from gpuwatch.bootstrap.service import build_service
from gpuwatch.daemon.tasks import periodic_tasks
from gpuwatch.settings import load
from gpuwatch.storage.setup.daemon_lease import NO_LEASE, Lease
from gpuwatch.storage.setup.database import Database

SETTINGS = """
[providers.vastai]
api_key = "k"
[[watch]]
name = "w"
gpu = ["H100"]
max_price = 2.0
"""


def test_every_host_delivers_and_keeps_its_files_and_the_leader_does_everything_else(
    tmp_path: Path, sqlite_database: Database
) -> None:
    (tmp_path / "gpuwatch.toml").write_text(SETTINGS)
    standby = Lease()
    standby.leads = False
    found = {}
    for name, lease in (("leader", NO_LEASE), ("standby", standby)):
        with build_service(load(str(tmp_path / "gpuwatch.toml")), sqlite_database, lease=lease) as service:
            found[name] = periodic_tasks(service)
    everywhere = {"deliver", "keeper's file", "ssh hosts"}
    assert {task.name for task in found["leader"] if task.on_every_host} == everywhere
    assert {task.name for task in found["standby"] if task.on_every_host} == everywhere | {"watch list"}
    assert "hunt vastai" in {task.name for task in found["leader"]}


def test_a_service_orders_only_in_the_term_in_which_it_began(tmp_path: Path, sqlite_database: Database) -> None:
    (tmp_path / "gpuwatch.toml").write_text(SETTINGS)
    lease = Lease()
    with build_service(load(str(tmp_path / "gpuwatch.toml")), sqlite_database, lease=lease) as service:
        assert service.launch_repository.lease.is_held
        lease.term += 1
        assert not service.launch_repository.lease.is_held


def test_the_clock_of_a_lease_goes_on_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {time.CLOCK_BOOTTIME: 3700.0, time.CLOCK_MONOTONIC: 100.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert lease_clock() == 3700.0
