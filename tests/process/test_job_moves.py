"""The real daemon moves a running job to a cheaper machine: once, and never with two machines at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.emulator.instances.machine_sshd import has_sshd
from tests.process.audit import job_state, rows
from tests.process.daemon_child import Home, wait_for
from tests.process.test_jobs import an_a100, job

JOB = """
command = '''mkdir -p ckpt out
if [ -n "${GPUWATCH_CHECKPOINT:-}" ]; then cat "$GPUWATCH_CHECKPOINT" > out/a.txt; exit 0; fi
echo 7 > ckpt/1
while :; do sleep 0.1; done'''
results = [{ source = "out/*", target = "results" }]
checkpoint = { path = "ckpt", every = "30m" }
resources = { gpu = "A100", disk_gb = 20 }
limit = { max_price = 2.5 }
hours = "20-30"
relocate = { action = "move", after = "0s" }
"""
DIED = 86
POINTS = ("move.before_stop", "move.before_record", "move.before_end")
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


def running(home: Home, market: Marketplace) -> None:
    """Submit the job, and let it run until its checkpoint is there, which is what a move starts from."""
    (home.folder / "train.toml").write_text(JOB)
    an_a100(market, 1.8)
    ran = home.run("job", "submit", "train.toml")
    assert ran.returncode == 0, ran.stderr
    wait_for(lambda: job_state(home.database_url, "train") == "running")


def never_two(market: Marketplace) -> None:
    """By the marketplace's own ledger: every instance was destroyed before the next one was created."""
    kinds = [entry.kind for entry in market.ledger.entries if entry.kind in {"create", "destroy"}]
    assert kinds == ["create", "destroy"] * (len(kinds) // 2)


def moved(home: Home, market: Marketplace) -> None:
    wait_for(lambda: job_state(home.database_url, "train") == "done")
    assert (home.folder / "results/a.txt").read_text() == "7\n"
    never_two(market)
    first, second = market.ledger.creates
    assert first.price_microusd_hour > second.price_microusd_hour
    assert market.instances() == []
    found = job(home)
    (move,) = found["moves"]
    assert (found["run_number"], found["retries_left"]) == (2, 2)
    assert move["to_usd_hour"] < 0.6 * move["usd_hour"]
    headlines = "SELECT headline FROM alert WHERE headline = 'job train: moves to a cheaper machine'"
    assert len(rows(home.database_url, headlines)) == 1


@pytest.mark.slow
def test_a_job_moves_once_to_a_machine_at_half_the_price_although_the_daemon_dies_at_every_step(
    tmp_path: Path, market: Marketplace
) -> None:
    home = Home(tmp_path, market.url)
    with home.daemon(GPUWATCH_TEST_PACE="30", GPUWATCH_FAILPOINT=POINTS[0]) as child:
        running(home, market)
        an_a100(market, 0.9)
        assert child.wait(timeout=240) == DIED
    for point in POINTS[1:]:
        with home.daemon(GPUWATCH_TEST_PACE="30", GPUWATCH_FAILPOINT=point) as child:
            assert child.wait(timeout=240) == DIED
    with home.daemon(GPUWATCH_TEST_PACE="30"):
        moved(home, market)
        assert "saving about $" in home.run("jobs", "show", "train").stdout
    (old, new) = sorted(home.launches(), key=lambda one: -one["price_usd_hour"])
    assert old["end_reason"] == "finished: its job moves to a cheaper machine"
    assert new["end_reason"].startswith("finished")
    assert [one["kind"] for one in job(home)["events"]].count("move") == 1


@pytest.mark.slow
def test_the_offer_is_gone_and_the_job_goes_on_with_another(tmp_path: Path, market: Marketplace) -> None:
    """Taken by somebody else while the old machine ended: the job waits in the queue, and rents what is there."""
    home = Home(tmp_path, market.url)
    with home.daemon(GPUWATCH_TEST_PACE="30", GPUWATCH_FAILPOINT="move.before_end") as child:
        running(home, market)
        cheap = an_a100(market, 0.9)
        assert child.wait(timeout=240) == DIED
    market.withdraw(cheap)
    an_a100(market, 2.0)
    with home.daemon(GPUWATCH_TEST_PACE="30"):
        wait_for(lambda: job_state(home.database_url, "train") == "done")
    never_two(market)
    assert json.loads(home.run("jobs", "show", "train", "--json").stdout)["run_number"] == 2
