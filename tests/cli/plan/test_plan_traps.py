"""Implausibly cheap prices: marked and last in every plan, and no verdict depends on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.cli.plan.test_plan_job_needs import priced

SEVENTY = ("plan", "job", "--size-of", "70B", "--method", "qlora", "--tokens", "100M")
MARKET = [f"{n},EU,H100 SXM,2,80,false,{7 + n / 10}" for n in range(6)]
TRAP = "9,EU,H100 SXM,2,80,false,0.40"


@pytest.fixture
def data(tmp_path: Path) -> str:
    return priced(tmp_path, TRAP, *MARKET)


def test_no_verdict_rests_on_a_trap(shell: Shell, data: str) -> None:
    """55.6 to 79.4 hours: at 0.40 an hour it would be 32 $, on the market 389 and more."""
    limits = ("--max-cost", "100", "--within", "90h")
    ran = shell(*SEVENTY, "--data", data, *limits)
    assert ran.code == 1
    assert "not feasible for 100.00 $ within 90 h: it costs 3" in ran.err
    assert shell(*SEVENTY, "--data", data, *limits, "--json").json["feasible"] == "not feasible"


def test_nor_on_one_that_may_be_late(shell: Shell, data: str) -> None:
    """Within 60 hours no offer is certain to be in time: the possible ones are judged alike."""
    ran = shell(*SEVENTY, "--data", data, "--max-cost", "100", "--within", "60h")
    assert ran.code == 1
    assert "not feasible for 100.00 $ within 60 h: it costs 3" in ran.err


def test_what_a_price_is_compared_with_is_the_market_and_not_what_fits_the_job(shell: Shell, tmp_path: Path) -> None:
    """Single GPUs cannot hold the job, but still show the normal price."""
    small = [f"{n},EU,H100 SXM,1,80,false,{3.5 + n / 10}" for n in range(6)]
    data = priced(tmp_path, TRAP, *small)
    argv = ("plan", "job", "--size-of", "70B", "--method", "lora", "--tokens", "100M", "--memory-gb", "150")
    found = shell(*argv, "--data", data, "--json").json["offers"]
    assert [(one["gpu_count"], one["too_cheap"]) for one in found] == [(2, True)]


def test_who_asks_for_it_gets_every_price_ranked(shell: Shell, data: str) -> None:
    ran = shell(*SEVENTY, "--data", data, "--max-cost", "100", "--any-price", "--json")
    assert (ran.code, ran.json["feasible"], ran.json["offers"][0]["price_usd_hour"]) == (0, "feasible", 0.40)
    assert not any(one["too_cheap"] for one in ran.json["offers"])
    ran = shell(*SEVENTY, "2x H100 SXM @ 3.50", "--any-price")
    assert (ran.code, ran.err.strip()) == (2, "--any-price requires real offers: omit the candidates")


def test_the_class_of_a_trap_comes_last_and_another_offer_of_it_is_preferred(shell: Shell, tmp_path: Path) -> None:
    data = priced(tmp_path, TRAP, *MARKET, "a,EU,A100 PCIE,1,80,false,0.112")
    ran = shell("plan", "fit", "--vram", "40", "--data", data, "--json")
    h100, a100 = ran.json["choices"]
    assert (h100["gpu"], h100["price_usd_hour"], h100["too_cheap"]) == ("H100 SXM", 7.0, False)
    assert (a100["gpu"], a100["too_cheap"]) == ("A100 PCIe 80GB", True)
    text = shell("plan", "fit", "--vram", "40", "--data", data)
    assert "too cheap" in text.out
    assert "cheapest per hour H100 SXM" in text.out
    asked = shell("plan", "fit", "--vram", "40", "--data", data, "--any-price", "--json").json["choices"]
    assert [one["price_usd_hour"] for one in asked] == [0.112, 0.40]
    given = shell("plan", "fit", "--price", "H100 SXM=2", "--any-price")
    assert (given.code, given.err.strip()) == (2, "--any-price applies to offers: omit --price")
