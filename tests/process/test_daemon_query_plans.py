"""Every statement of a daemon that hunts, rents, follows, guards, runs a job and sends has an index that fits it.

So has every one of an import and an export. The daemon's own tasks run in this process, one after the other.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.bootstrap.service import Service
from gpuwatch.cli import run
from gpuwatch.daemon.tasks import periodic_tasks
from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.emulator.instances.machine_sshd import has_sshd
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.settings import load
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.setup.database import Database
from tests.process.daemon_child import Home
from tests.process.test_job_runs import JOB
from tests.process.test_jobs import an_a100
from tests.storage.history.recording.test_recorded_polls import fill
from tests.test_query_plans import LARGE, recorded_statements, whole_scans

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not has_sshd() or os.getuid() != 0,
        reason="needs Debian's openssh-server, and root: the marketplace's login is root",
    ),
]
LIMIT_S = 120.0
GROWING = (*LARGE, "alert", "delivery", "job", "job_run", "job_event", "launch_event", "approval", "hook_run")


@pytest.fixture
def market(tmp_path: Path) -> Any:
    quick = Delays(created_s=0.1, ssh_s=0.1, loading_s=0.1, running_s=0.3)
    with Marketplace(
        seed=3, key="demo-key", size=4, odd_rows=False, delays=quick, machines=tmp_path / "machines"
    ) as one:
        yield one


def live(service: Service, folder: Path) -> None:
    """Run all tasks until a watch has rented, a job has its results, and both instances are gone."""
    tasks, until = periodic_tasks(service), time.monotonic() + LIMIT_S
    jobs = SqlJobRepository(service.store)
    while time.monotonic() < until:
        for task in tasks:
            task.run()
        for machine in (folder / "machines").glob("*/home/gpuwatch/*/"):
            (machine / "go").touch()
        if not jobs.open_jobs() and service.launch_repository.all():
            break
        time.sleep(0.05)
    assert not jobs.open_jobs()
    for _ in range(3):
        for task in tasks:
            task.run()


def test_no_statement_of_a_daemon_scans_a_large_table(
    database: Database,
    market: Marketplace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Home(tmp_path, market.url, has_store=False, database_url=str(database.url))
    (tmp_path / "train.toml").write_text(JOB.format())
    (tmp_path / "in.txt").write_text("input\n")
    monkeypatch.setenv("JOB_TOKEN", "word")
    an_a100(market)
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    fill(database)
    settings = load(cwd=tmp_path)
    http = PooledHttpClient()
    with recorded_statements() as statements:
        assert run(["job", "submit", "train.toml"]) == 0
        service = Service(settings, database, http)
        try:
            live(service, tmp_path)
        finally:
            service.close()
            http.close()
        assert run(["store", "export", "prices.csv", "--since", "all"]) == 0
        assert run(["store", "import", "prices.csv"]) == 0
        assert run(["stop", "--all", "--yes"]) in (0, 1)
    assert len(statements) > 100
    found = whole_scans(database, statements, GROWING)
    assert not found, "\n".join(f"{whole}: {statement}" for statement, whole in found.items())
