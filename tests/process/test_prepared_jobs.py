"""Jobs on machines without GPUs, and jobs that prepare their data there before their GPU is rented."""

from __future__ import annotations

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

pytestmark = pytest.mark.skipif(
    not has_sshd() or os.getuid() != 0,
    reason="needs Debian's openssh-server, and root: the marketplace's login is root",
)
DIED = 86
ON_A_CPU = """
command = "tr a-z A-Z < in.txt > out.txt"
inputs = ["in.txt"]
results = [{ source = "out.txt", target = "made" }]
resources = { gpu = "none", min_vcpu = 8, min_ram_gib = 32, disk_gb = 20 }
limit = { max_price = 0.10, max_usd = 1 }
hours = 1
"""


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Marketplace]:
    quick = Delays(created_s=0.1, ssh_s=0.1, loading_s=0.1, running_s=0.3)
    folder = tmp_path / "machines"
    with Marketplace(seed=3, key="demo-key", size=0, odd_rows=False, delays=quick, machines=folder) as opened:
        yield opened


def a_cpu_machine(market: Marketplace) -> int:
    return market.publish(gpu="none", usd_hour=0.06, cpu_cores_effective=16, cpu_ram=64 * 1024)


@pytest.mark.slow
def test_a_job_runs_whole_on_a_machine_without_gpus(tmp_path: Path, market: Marketplace) -> None:
    home = Home(tmp_path, market.url)
    (tmp_path / "clean.toml").write_text(ON_A_CPU)
    (tmp_path / "in.txt").write_text("words\n")
    offer = a_cpu_machine(market)
    with home.daemon():
        submitted = home.run("job", "submit", "clean.toml")
        assert submitted.returncode == 0, submitted.stderr
        wait_for(lambda: job_state(home.database_url, "clean") in {"done", "failed"})
    assert (tmp_path / "made/out.txt").read_text() == "WORDS\n"
    (launch,) = home.launches()
    assert (launch["offer_id"], launch["state"], launch["gpu_count"]) == (str(offer), "ended", 0)
    assert market.instances() == []


PREPARED = """
command = "cat words/*.txt > out.txt; wc -l < out.txt >> out.txt"
inputs = ["extra.txt"]
results = [{ source = "out.txt", target = "made" }]
resources = { gpu = "A100", disk_gb = 20 }
limit = { max_price = 2.0, max_usd = 20 }
hours = 1
[prepare]
command = "mkdir -p words scratch; tr a-z A-Z < in.txt > words/a.txt; touch scratch/b; echo $KIND > words/b.txt"
env = { KIND = "clean" }
inputs = ["in.txt"]
outputs = "words/*"
resources = { min_vcpu = 8, min_ram_gib = 32, disk_gb = 20 }
limit = { max_price = 0.10, max_usd = 1 }
hours = 1
"""


def submitted(home: Home, market: Marketplace, first: str = "") -> list[int]:
    """Submit a job with a preparation that begins with `first`; return the offers that it can rent, in order."""
    (home.folder / "train.toml").write_text(PREPARED.replace("mkdir -p words", f"{first}mkdir -p words"))
    (home.folder / "in.txt").write_text("words\n")
    (home.folder / "extra.txt").write_text("more\n")
    offers = [a_cpu_machine(market), an_a100(market)]
    ran = home.run("job", "submit", "train.toml")
    assert ran.returncode == 0, ran.stderr
    assert "it prepares its data first, then rents its own machine; $20.00 at most for both" in ran.stdout
    return offers


def ended(home: Home, market: Marketplace, offers: list[int]) -> None:
    """Each machine was rented once, the second after the first was gone; the data came from one to the other."""
    wait_for(lambda: job_state(home.database_url, "train") in {"done", "failed"})
    found = job(home)
    assert (found["state"], found["reason"]) == ("done", None)
    assert (home.folder / "made/out.txt").read_text() == "WORDS\nclean\n2\n"
    kinds = [entry.kind for entry in market.ledger.entries if entry.kind in {"create", "destroy"}]
    assert kinds == ["create", "destroy"] * 2
    assert [int(one["offer_id"]) for one in sorted(home.launches(), key=lambda one: one["intended_at"])] == offers
    assert market.instances() == []
    assert (found["run_number"], found["retries_left"]) == (2, 2)


@pytest.mark.slow
def test_a_job_prepares_its_data_without_a_gpu_and_begins_with_it(tmp_path: Path, market: Marketplace) -> None:
    home = Home(tmp_path, market.url)
    with home.daemon():
        offers = submitted(home, market)
        ended(home, market, offers)
    assert not (tmp_path / "results").exists()
    assert "job train: its data is prepared" in home.run("alerts").stdout


@pytest.mark.slow
def test_killed_while_it_prepares_and_at_both_sides_of_the_hand_over_it_prepares_once_and_rents_once(
    tmp_path: Path, market: Marketplace
) -> None:
    home = Home(tmp_path, market.url)
    with home.daemon(GPUWATCH_TEST_PACE="30") as child:
        offers = submitted(home, market, "while [ ! -e ../go ]; do sleep 0.1; done; ")
        wait_for(lambda: job_state(home.database_url, "train") == "running")
        found = job(home)
        assert found["stage"] == "prepare"
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    (machine,) = (tmp_path / "machines").iterdir()
    (machine / "home/gpuwatch" / found["job_id"] / "go").touch()
    for point in ("prepare.before_record", "prepare.after_record"):
        with home.daemon(GPUWATCH_TEST_PACE="30", GPUWATCH_FAILPOINT=point) as child:
            assert child.wait(timeout=240) == DIED
        assert len(market.ledger.creates) == 1
        assert market.instances() == []
    with home.daemon(GPUWATCH_TEST_PACE="30"):
        ended(home, market, offers)
