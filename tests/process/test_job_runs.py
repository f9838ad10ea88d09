"""A job from its file to its results: the real daemon, and a marketplace whose instances have real SSH servers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.emulator.instances.machine_sshd import has_sshd
from tests.process.audit import job_state
from tests.process.daemon_child import Home, wait_for
from tests.process.test_jobs import an_a100, job

JOB = """
command = "cat in.txt; while [ ! -e ../go ]; do sleep 0.1; done; mkdir -p out; echo result > out/a.txt; echo $TOKEN"
env = {{ TOKEN = {{ from_env = "JOB_TOKEN" }} }}
inputs = [{{ source = "in.txt", target = "in.txt" }}]
results = [{{ source = "out/*", target = "results" }}]
resources = {{ gpu = "A100", disk_gb = 20 }}
limit = {{ max_price = 2.0 }}
max_runtime = "2h"
"""
pytestmark = pytest.mark.skipif(
    not has_sshd() or os.getuid() != 0,
    reason="needs Debian's openssh-server, and root: the marketplace's login is root",
)


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Marketplace]:
    quick = Delays(created_s=0.1, ssh_s=0.1, loading_s=0.1, running_s=0.3)
    folder = tmp_path / "machines"
    with Marketplace(seed=3, key="demo-key", size=4, odd_rows=False, delays=quick, machines=folder) as opened:
        for row in opened.offers():
            opened.withdraw(row["id"])
        yield opened


@pytest.mark.slow
def test_a_job_survives_a_killed_daemon_and_ends_with_its_results(tmp_path: Path, market: Marketplace) -> None:
    """One rent, one start, fetched results, no instance left."""
    home = Home(tmp_path, market.url)
    (tmp_path / "train.toml").write_text(JOB.format())
    (tmp_path / "in.txt").write_text("input\n")
    an_a100(market)
    with home.daemon(JOB_TOKEN="word-from-outside") as child:
        assert home.run("job", "submit", "train.toml").returncode == 0
        wait_for(lambda: job_state(home.database_url, "train") == "running")
        found = job(home)
        os.kill(child.pid, signal.SIGKILL)
    (launch,) = home.launches()
    with home.daemon(JOB_TOKEN="word-from-outside"):
        (machine,) = (tmp_path / "machines").iterdir()
        (machine / "home/gpuwatch" / found["job_id"] / "go").touch()
        wait_for(lambda: job_state(home.database_url, "train") == "done")
    assert (tmp_path / "results/a.txt").read_text() == "result\n"
    (launch,) = home.launches()
    assert (launch["state"], launch["end_reason"].split(":")[0]) == ("ended", "finished")
    assert market.instances() == []
    assert "word-from-outside" not in home.log()


SMALL = """
command = "cat /proc/uptime > out.txt"
results = [{ source = "out.txt", target = "results-%s" }]
resources = { gpu = "A100", disk_gb = 20 }
limit = { max_price = 2.0 }
hours = 0.25
"""


@pytest.mark.slow
def test_two_small_jobs_are_done_by_one_rent(tmp_path: Path, market: Marketplace) -> None:
    """The second one waits for the instance of the first, reports that, and continues there; then nothing is left."""
    home = Home(tmp_path, market.url)
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(SMALL % name)
    an_a100(market)
    with home.daemon():
        assert home.run("job", "submit", "one.toml", "two.toml").returncode == 0
        plan = json.loads(home.run("job", "plan", "--json").stdout)
        wait_for(lambda: {job_state(home.database_url, name) for name in ("one", "two")} == {"done"})
    assert [one["jobs"] for one in plan["merges"]] in ([["one", "two"]], [])  # [] once the first one is done
    uptimes = [float((tmp_path / f"results-{name}/out.txt").read_text().split()[0]) for name in ("one", "two")]
    assert uptimes[0] < uptimes[1]
    (launch,) = home.launches()
    assert (launch["state"], launch["end_reason"]) == ("ended", "finished: job two")
    assert {job(home, name)["launch_id"] for name in ("one", "two")} == {launch["launch_id"]}
    assert market.instances() == []
