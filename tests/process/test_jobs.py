"""A queued job rents through the normal path of the real daemon, is linked to its launch, and ends with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Marketplace
from tests.process.audit import job_state, launches, rows
from tests.process.daemon_child import Home, bargain, wait_for, wait_for_searches

JOB = """
command = "python train.py"
resources = {{ gpu = "A100", disk_gb = 20 }}
limit = {{ max_price = {price} }}
max_runtime = "2h"
{more}
"""


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=3, key="demo-key", size=4, odd_rows=False) as opened:
        for row in opened.offers():
            opened.withdraw(row["id"])
        yield opened


def submit(home: Home, name: str = "train", price: float = 2.0, more: str = "") -> dict[str, Any]:
    (home.folder / f"{name}.toml").write_text(JOB.format(price=price, more=more))
    ran = home.run("job", "submit", f"{name}.toml", "--json")
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)[0]
    return found


def job(home: Home, name: str = "train") -> dict[str, Any]:
    ran = home.run("job", "show", name, "--json")
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def job_in(home: Home, state: str, name: str = "train") -> dict[str, Any]:
    """Return a job once it is in that state."""
    wait_for(lambda: job_state(home.database_url, name) == state)
    return job(home, name)


def an_a100(market: Marketplace, usd_hour: float = 1.5) -> int:
    return int(market.publish(gpu="A100 SXM4", count=1, usd_hour=usd_hour))


def test_a_queued_job_rents_at_its_price_and_cancel_ends_the_instance(tmp_path: Path, market: Marketplace) -> None:
    home = Home(tmp_path, market.url)
    dear = an_a100(market, 3.0)
    with home.daemon():
        queued = submit(home)
        wait_for_searches(market, 4)
        assert job(home)["state"] == "queued"
        market.withdraw(dear)
        an_a100(market, 1.5)
        found = job_in(home, "preparing")
        (launch,) = home.launches()
        assert (launch["watch"], launch["watch_id"]) == ("job:train", queued["job_id"])
        assert found["launch_id"] == launch["launch_id"]
        assert [one["kind"] for one in found["events"]] == ["submitted", "renting", "preparing"]
        assert "gpuwatch jobs show train" in (tmp_path / "log.txt").read_text()
        assert "gpuwatch check job:" not in (tmp_path / "log.txt").read_text()
        assert [one["run_number"] for one in found["runs"]] == [1]
        an_a100(market, 1.0)
        wait_for_searches(market, 4)
        assert len(home.launches()) == 1
        assert home.run("job", "cancel", "train").returncode == 0
        assert home.launches()[0]["state"] == "ended"
        assert job(home)["state"] == "cancelled"
        wait_for_searches(market, 4)
        assert len(home.launches()) == 1


def test_a_dry_run_rents_nothing_for_a_job(tmp_path: Path, market: Marketplace) -> None:
    home = Home(tmp_path, market.url, dry_run="true")
    an_a100(market)
    with home.daemon():
        submit(home)
        wait_for(lambda: [launch for launch in launches(home.database_url) if launch["watch"] == "job:train"])
        assert all(launch["dry_run"] for launch in home.launches())
        assert job(home)["state"] == "queued"
        assert market.instances() == []


def test_a_job_whose_deadline_passes_fails_and_one_that_waits_for_it_too(tmp_path: Path, market: Marketplace) -> None:
    home = Home(tmp_path, market.url)
    with home.daemon():
        (tmp_path / "train.toml").write_text(JOB.format(price=2.0, more='deadline = "3s"'))
        (tmp_path / "after.toml").write_text(JOB.format(price=2.0, more='depends_on = ["train"]'))
        # by one command: a slow machine may take longer than the deadline for two
        assert home.run("job", "submit", "train.toml", "after.toml").returncode == 0
        an_a100(market, 9.0)
        bargain(market, 9.0)
        found = job_in(home, "failed")
        assert found["reason"].startswith("its deadline passed before an offer matched")
        after = job_in(home, "failed", "after")
        assert after["reason"] == "it depends on 'train', which was not done"


def test_the_owner_approves_the_offer_of_a_job(tmp_path: Path, market: Marketplace) -> None:
    home = Home(tmp_path, market.url)
    an_a100(market)
    with home.daemon():
        submit(home, more='action = "ask"')
        wait_for(lambda: rows(home.database_url, "SELECT 1 FROM approval"))
        asked = json.loads(home.run("asks", "--json").stdout)
        assert asked[0]["watch"] == "job:train"
        assert home.run("approve", asked[0]["ask_id"]).returncode == 0
        job_in(home, "preparing")
