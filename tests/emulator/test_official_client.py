"""The marketplace's own command line against the emulator: what it understands, a real client understands.

It lives in an environment of its own (`make test` makes `.venv-official`); GPUWATCH_OFFICIAL_CLIENT names another.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace

ROOT = Path(__file__).parents[2]
CLIENT = os.environ.get("GPUWATCH_OFFICIAL_CLIENT") or shutil.which("vastai", path=ROOT / ".venv-official" / "bin")
QUICK = Delays(created_s=0.05, ssh_s=0.1, loading_s=0.15, running_s=0.2, measured_s=0.0, reboot_s=0.1, start_s=0.1)
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

pytestmark = pytest.mark.skipif(
    CLIENT is None, reason="no official client: run `make test`, or set GPUWATCH_OFFICIAL_CLIENT"
)
Run = Callable[..., str]


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(size=120, delays=QUICK) as opened:
        yield opened


@pytest.fixture
def vastai(market: Marketplace, tmp_path: Path) -> Run:
    """Runs the command line with a home of its own and answers what it printed."""

    def run(*words: str, key: str | None = None, fails: bool = False) -> str:
        home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
        environment = {"PATH": os.environ["PATH"], "VAST_API_KEY": key or market.key, "COLUMNS": "400", **home}
        command = [str(CLIENT), "--url", market.url, *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert fails or done.returncode == 0, done.stderr
        return COLOUR.sub("", done.stdout + done.stderr)

    return run


def rows(printed: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(printed)
    return found


def test_search_filters_orders_and_prices_the_disk(market: Marketplace, vastai: Run) -> None:
    wanted = "gpu_name in [H100_SXM,RTX_4090] num_gpus>=1 reliability>0.9 gpu_ram>=20 cuda_vers>=12.0 duration>1"
    found = rows(vastai("search", "offers", wanted, "--order", "dph", "--storage", "100", "--limit", "10", "--raw"))
    assert found
    assert [row["dph_total"] for row in found] == sorted(row["dph_total"] for row in found)
    for row in found:
        assert row["gpu_name"] in ("H100 SXM", "RTX 4090")
        assert (row["verification"], row["rentable"]) == ("verified", True)
        assert row["dph_total"] == pytest.approx(row["dph_base"] + row["storage_cost"] * 100 / 720)


def test_search_prints_its_table(market: Marketplace, vastai: Run) -> None:
    offer_id = market.publish(gpu="H100 SXM", usd_hour=0.11)
    table = vastai("search", "offers", "gpu_name=H100_SXM", "-o", "dph", "--limit", "1")
    assert str(offer_id) in table
    assert "H100_SXM" in table
    assert "0.11" in table


def test_search_for_bids_and_through_the_second_door(market: Marketplace, vastai: Run) -> None:
    offer_id = market.publish(gpu="H100 SXM", usd_hour=0.2, min_bid=0.1)
    bid = rows(vastai("search", "offers", "--bid", "gpu_name=H100_SXM", "-o", "dph", "--limit", "1", "--raw"))[0]
    new = rows(vastai("search", "offers", "--new", "gpu_name=H100_SXM", "-o", "dph", "--limit", "1", "--raw"))[0]
    assert [(row["id"], row["dph_base"]) for row in (bid, new)] == [(offer_id, 0.1), (offer_id, 0.2)]


def test_an_instance_is_created_shown_labelled_stopped_started_and_destroyed(market: Marketplace, vastai: Run) -> None:
    offer_id = market.publish(gpu="H100 SXM", usd_hour=2.0)
    words = ("create", "instance", str(offer_id), "--image", "pytorch/pytorch", "--disk", "20")
    made = json.loads(vastai(*words, "--label", "gpuwatch-x", "--ssh", "--direct", "--env", "-e A=b", "--raw"))
    contract = str(made["new_contract"])
    assert made["success"] is True
    listed = rows(vastai("show", "instances", "--raw"))
    assert [(row["id"], row["label"], row["extra_env"]) for row in listed] == [
        (int(contract), "gpuwatch-x", {"A": "b"})
    ]
    assert json.loads(vastai("show", "instance", contract, "--raw"))["dph_total"] == 2.0
    assert "running" in vastai("show", "instance", contract)
    vastai("label", "instance", contract, "other")
    vastai("stop", "instance", contract)
    shown = json.loads(vastai("show", "instance", contract, "--raw"))
    assert (shown["label"], shown["intended_status"]) == ("other", "stopped")
    vastai("start", "instance", contract)
    assert json.loads(vastai("show", "instance", contract, "--raw"))["intended_status"] == "running"
    assert vastai("ssh-url", contract).startswith("ssh://root@")
    vastai("destroy", "instance", contract, "-y")
    assert rows(vastai("show", "instances", "--raw")) == []
    assert market.ledger.alive() == ()


def test_a_bid_is_made_and_changed(market: Marketplace, vastai: Run) -> None:
    offer_id = market.publish(usd_hour=2.0, min_bid=0.5)
    words = ("create", "instance", str(offer_id), "--image", "a", "--disk", "10", "--bid_price", "0.6", "--raw")
    contract = str(json.loads(vastai(*words))["new_contract"])
    vastai("change", "bid", contract, "--price", "0.9")
    shown = json.loads(vastai("show", "instance", contract, "--raw"))
    assert (shown["is_bid"], shown["dph_base"]) == (True, 0.9)


def test_the_account_and_refusals_are_understood(market: Marketplace, vastai: Run) -> None:
    assert json.loads(vastai("show", "user", "--raw"))["credit"] == 100.0
    assert "Invalid user key" in vastai("show", "user", key="wrong", fails=True)
    assert "no_such_ask" in vastai("create", "instance", "5", "--image", "a", "--disk", "10", fails=True)
    assert "not found" in vastai("destroy", "instance", "5", "-y", fails=True)


def test_more_instances_than_a_page_are_listed(market: Marketplace, vastai: Run) -> None:
    body = {"image": "a", "disk": 10.0}
    with market._exchange.lock:
        for _ in range(30):
            listing = market._exchange.market.listings[market.publish()]
            market._exchange.fleet.create(listing, body, market.clock())
    assert len(rows(vastai("show", "instances", "--raw"))) == 30
