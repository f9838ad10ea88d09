"""The marketplace's own command line with the emulator: a real client understands its answers.

It lives in an environment of its own (`make test` makes `.venv-official`); GPUWATCH_OFFICIAL_CLIENT names another.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.emulator.clock import ManualClock
from tests.checkout import ROOT

CLIENT = os.environ.get("GPUWATCH_OFFICIAL_CLIENT") or shutil.which("vastai", path=ROOT / ".venv-official" / "bin")
QUICK = Delays(created_s=0.05, ssh_s=0.1, loading_s=0.15, running_s=0.2, measured_s=0.0, reboot_s=0.1, start_s=0.1)
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

pytestmark = pytest.mark.skipif(
    CLIENT is None, reason="no official client: run `make test`, or set GPUWATCH_OFFICIAL_CLIENT"
)
Run = Callable[..., str]


@pytest.fixture
def clock() -> ManualClock:
    """A stopped clock, so that the state of an instance does not depend on our speed; at the current time."""
    return ManualClock(time.time())


@pytest.fixture
def market(clock: ManualClock) -> Iterator[Marketplace]:
    with Marketplace(size=120, delays=QUICK, clock=clock) as opened:
        yield opened


# Loads the client once and forks for each command: loading takes most of a second, sixty times.
SERVER = """
import gc, json, os, sys
from vastai.cli.main import main
gc.freeze()
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if not child:
        os.environ["VAST_API_KEY"] = request["key"]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, output in enumerate(request["outputs"], 1):
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["vastai", *request["argv"]]
        sys.exit(main())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[IO[str], IO[str]]]:
    """Runs commands, returns exit codes; has a home folder of its own."""
    home = str(tmp_path_factory.mktemp("home"))
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "400"}
    environment |= dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), home)
    python = Path(str(CLIENT)).resolve().parent / "python"
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [python, "-c", SERVER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdin, process.stdout


@pytest.fixture
def vastai(market: Marketplace, server: tuple[IO[str], IO[str]], tmp_path: Path) -> Run:
    """Run the command line and return its output."""
    outputs = [tmp_path / "stdout", tmp_path / "stderr"]

    def run(*words: str, key: str | None = None, fails: bool = False) -> str:
        request = {
            "argv": ["--url", market.url, *words], "key": key or market.key,
            "outputs": [str(output) for output in outputs],
        }  # fmt: skip
        commands, codes = server
        print(json.dumps(request), file=commands, flush=True)
        code = int(codes.readline())
        stdout, stderr = (output.read_text() for output in outputs)
        assert fails or code == 0, stderr
        return COLOUR.sub("", stdout + stderr)

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


def test_an_instance_is_created_shown_labelled_stopped_started_and_destroyed(
    market: Marketplace, clock: ManualClock, vastai: Run
) -> None:
    offer_id = market.publish(gpu="H100 SXM", usd_hour=2.0)
    words = ("create", "instance", str(offer_id), "--image", "pytorch/pytorch", "--disk", "20")
    made = json.loads(vastai(*words, "--label", "gpuwatch-x", "--ssh", "--direct", "--env", "-e A=b", "--raw"))
    contract = str(made["new_contract"])
    assert made["success"] is True
    clock.advance(1)
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
    clock.advance(1)
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


def rented(market: Marketplace, vastai: Run, *more: str, **fields: Any) -> int:
    """Rent a published offer with the client; return the contract's number."""
    words = ("create", "instance", str(market.publish(**fields)), "--image", "a", "--disk", "10")
    contract: int = json.loads(vastai(*words, *more, "--raw"))["new_contract"]
    return contract


def test_an_outbid_instance_resumes_when_the_client_raises_its_bid(
    market: Marketplace, clock: ManualClock, vastai: Run
) -> None:
    contract = rented(market, vastai, "--bid_price", "0.6", usd_hour=2.0, min_bid=0.5)
    clock.advance(1)
    market.outbid(contract, min_bid=0.8)
    shown = json.loads(vastai("show", "instance", str(contract), "--raw"))
    assert (shown["actual_status"], shown["min_bid"]) == ("stopped", 0.8)
    vastai("change", "bid", str(contract), "--price", "0.8")
    clock.advance(1)
    shown = json.loads(vastai("show", "instance", str(contract), "--raw"))
    assert (shown["intended_status"], shown["actual_status"]) == ("running", "running")


def test_charges_are_shown_as_table_tree_and_raw(market: Marketplace, clock: ManualClock, vastai: Run) -> None:
    market.change(charge_factor=1e6)  # so that a second is visible in the costs
    contract = rented(market, vastai, "--label", "gpuwatch-x", usd_hour=2.0)
    market.transfer(contract, down_gb=3.0)
    clock.advance(5)  # GPUs cost nothing before they run
    vastai("destroy", "instance", str(contract), "-y")
    bill = market.ledger.bill_microusd(contract) / 1e6
    raw = json.loads(vastai("show", "invoices-v1", "--charges", "--raw"))
    assert [(row["source"], row["amount"]) for row in raw["results"]] == [(f"instance-{contract}", round(bill, 3))]
    assert raw["results"][0]["metadata"] == {"label": "gpuwatch-x"}
    amount = f"${bill:.3f}"
    assert amount in vastai("show", "invoices-v1", "--charges", "--no-color")
    tree = vastai("show", "invoices-v1", "--charges", "--format", "tree", "--verbose", "--no-color")
    assert amount in tree
    assert "gpu" in tree
    assert "No results found" in vastai("show", "invoices-v1", "--charges", "-ct", "v", "--no-color")


def test_announced_price_rises_are_shown_accepted_and_rejected(market: Marketplace, vastai: Run) -> None:
    first, second = (rented(market, vastai, usd_hour=1.0) for _ in range(2))
    assert "No pending price increases." in vastai("show", "pending-price-increases")
    numbers = [
        market.propose_increase(one, gpu_usd_hour=1.5, effective_after_s=3600.0, fees=(0.1, 0.15))
        for one in (first, second)
    ]
    table = vastai("show", "pending-price-increases")
    assert "1.0000_->_1.5000" in table
    assert "10.00_->_15.00" in table
    assert vastai("show", "pending-price-increases", "--quiet").split() == [str(number) for number in numbers]
    assert f"Accepted pending_id={numbers[0]} contract_id={first}" in vastai(
        "accept", "price-increase", str(first), "--yes"
    )
    done = json.loads(vastai("reject", "price-increase", str(second), "--yes", "--raw"))
    assert (done["success"], done["acted"], done["stale"]) == (True, 1, 0)
    assert market.increase_answers() == {numbers[0]: "accepted", numbers[1]: "rejected"}
    again = vastai("accept", "price-increase", str(first), "--yes", fails=True)
    assert "no longer available" in again


def test_a_create_with_everything_is_kept_as_the_client_sent_it(market: Marketplace, vastai: Run) -> None:
    words = ("--login", "-u me -p secret registry", "--env", "-p 8000:8000 -e A=b", "--onstart-cmd", "ls")
    volume = ("--link-volume", "5", "--mount-path", "/data")
    kept = market.ordered(rented(market, vastai, "--ssh", "--direct", *words, *volume))
    assert (kept["image_login"], kept["onstart"]) == ("-u me -p secret registry", "ls")
    assert kept["env"] == {"-p 8000:8000": "1", "A": "b"}
    assert kept["volume_info"] == {"mount_path": "/data", "create_new": False, "volume_id": 5}


def test_the_account_and_refusals_are_understood(market: Marketplace, vastai: Run) -> None:
    assert json.loads(vastai("show", "user", "--raw"))["credit"] == 100.0
    assert "Invalid user key" in vastai("show", "user", key="wrong", fails=True)
    assert "no_such_ask" in vastai("create", "instance", "5", "--image", "a", "--disk", "10", fails=True)
    assert "not found" in vastai("destroy", "instance", "5", "-y", fails=True)


def test_more_instances_than_a_page_are_listed(market: Marketplace, vastai: Run) -> None:
    body = {"image": "a", "disk": 10.0}
    with market._simulation.lock:
        for _ in range(30):
            listing = market._simulation.market.listings[market.publish()]
            market._simulation.fleet.create(listing, body, market.clock())
    assert len(rows(vastai("show", "instances", "--raw"))) == 30


def test_a_key_is_attached_to_an_instance_and_detached(market: Marketplace, vastai: Run) -> None:
    contract, key = str(rented(market, vastai)), "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample me"
    assert "'success': True" in vastai("attach", "ssh", contract, key)
    assert "already" in vastai("attach", "ssh", contract, key, fails=True)
    assert "'success': True" in vastai("detach", "ssh", contract, "1")
    assert "not found" in vastai("detach", "ssh", contract, "1", fails=True)
    assert "not found" in vastai("attach", "ssh", "5", key, fails=True)


def test_a_template_is_made_found_and_deleted(vastai: Run) -> None:
    words = ("--image", "vastai/pytorch", "--env", "-p 8000:8000", "--ssh")
    assert "New Template" in vastai("create", "template", "--name", "mine", *words)
    found = rows(vastai("search", "templates", "name=mine"))
    assert [(one["name"], one["image"]) for one in found] == [("mine", "vastai/pytorch")]
    assert rows(vastai("search", "templates", "name=other")) == []
    vastai("delete", "template", "--hash-id", found[0]["hash_id"])
    assert rows(vastai("search", "templates", "name=mine")) == []


def test_payments_are_shown_by_both_commands(vastai: Run) -> None:
    raw = json.loads(vastai("show", "invoices-v1", "--invoices", "--raw"))
    assert [(row["source"], row["amount"]) for row in raw["results"]] == [("stripe", -100.0)]
    assert "$100.00" in vastai("show", "invoices-v1", "--invoices", "--no-color")
    assert "No results found" in vastai("show", "invoices-v1", "--invoices", "-it", "bitpay", "--no-color")
    assert "Stripe_payment" in vastai("show", "invoices")


def test_a_prepaid_instance_is_cheaper(market: Marketplace, vastai: Run) -> None:
    market.credit_usd = 5000.0
    contract = rented(market, vastai, usd_hour=1.0)
    assert "prepaid for 1.0 months" in vastai("prepay", "instance", str(contract), "720")
    assert json.loads(vastai("show", "instance", str(contract), "--raw"))["dph_base"] == pytest.approx(0.8)
    assert "lack credit" in vastai("prepay", "instance", str(contract), "72000", fails=True)
