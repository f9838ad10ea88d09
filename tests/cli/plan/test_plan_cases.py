"""`gpuwatch plan cases`, `plan hybrid`, `plan pilot`: common jobs on current offers, and an extrapolated pilot."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from tests.checkout import TESTS
from tests.cli.conftest import Shell

RECORDED = TESTS / "recorded" / "price-history" / "vastai-offers-2026-02-27_03-03.csv.gz"
HYBRID = ("plan", "hybrid", "--size-of", "8B", "--tokens", "100M", "--infer-tokens", "1B")
PILOT = ("plan", "pilot", "2x H100 @ 2.00", "--tokens", "100M")
COLUMNS = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"


def test_each_case_names_the_cheapest_offer_of_each_provider(shell: Shell, tmp_path: Path) -> None:
    data = tmp_path / "two.csv"
    rows = [
        "here,1,EU,RTX 4090,1,24,false,0.50",
        "there,2,EU,RTX 4090,1,24,false,0.40",
        "there,3,EU,RTX 4090,1,24,false,9",
    ]
    data.write_text("\n".join([COLUMNS, *(f"2026-03-01T00:00:00Z,{row}" for row in rows)]) + "\n")
    found = shell("plan", "cases", "--data", str(data), "--json").json["cases"]
    assert [(one["provider"], one["price_usd_hour"]) for one in found[0]["offers"]] == [("there", 0.4), ("here", 0.5)]
    assert found[1] == {"case": "fine-tune 70B (QLoRA), 100M tokens", "offers": []}
    shown = shell("plan", "cases", "--data", str(data)).out
    assert "nothing fits" in shown
    assert "here" in shown


def test_the_cases_on_the_public_prices(shell: Shell) -> None:
    found = shell("plan", "cases", "--data", str(RECORDED), "--json").json["cases"]
    assert len(found) == 5
    assert all(one["offers"] for one in found)


def test_training_here_and_inference_there_is_held_against_one_machine(shell: Shell, tmp_path: Path) -> None:
    """Training needs arithmetic, generating one sequence needs bandwidth: two cards, each cheap for one of them."""
    data = tmp_path / "two.csv"
    rows = ["market,1,EU,H100 SXM,1,80,false,2.00", "market,2,EU,RTX 3090,1,24,false,0.10"]
    data.write_text("\n".join([COLUMNS, *(f"2026-03-01T00:00:00Z,{row}" for row in rows)]) + "\n")
    ran = shell(*HYBRID, "--infer-batch", "1", "--data", str(data), "--json")
    assert ran.code == 0, ran.err
    assert ran.json["infer"]["gpu"] == "RTX 3090"
    assert ran.json["apart_usd"] <= ran.json["together_usd"]
    assert ran.json["apart_usd"] == pytest.approx(ran.json["train"]["job_cost_usd"] + ran.json["infer"]["job_cost_usd"])
    printed = shell(*HYBRID, "--data", str(data)).out
    assert printed.startswith("Use ")
    assert " on two, $" in printed.splitlines()[0]


@pytest.mark.parametrize("argv", [("plan", "cases"), HYBRID])
def test_without_prices_there_is_no_answer(shell: Shell, market: Marketplace, argv: tuple[str, ...]) -> None:
    assert shell(*argv).code == 3
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    assert shell(*argv, "--poll", "--json").code in (0, 1, 3)  # the emulator's own market decides
    assert shell(*argv, "--poll", "--data", str(RECORDED)).code == 2


def test_a_pilot_is_extrapolated(shell: Shell) -> None:
    found = shell(*PILOT, "--measured", "350-500tok/s", "--json").json
    assert found["hours_low"] == pytest.approx(100e6 / 500 / 3600)
    assert found["hours"] == pytest.approx(100e6 / 350 / 3600)
    assert found["job_cost_usd"] == pytest.approx(found["hours"] * 4)
    assert (found["loss_falls"], found["loss_at_the_end"]) == (None, None)
    one = shell(*PILOT, "--measured", "412tok/s", "--json").json
    assert one["hours"] / one["hours_low"] == pytest.approx(1.21)  # one figure: 10 % each way
    assert one["pilot_hours"] == pytest.approx(1e6 / 412 / 3600)


def test_a_loss_that_does_not_fall_stops_the_job(shell: Shell) -> None:
    falls = shell(*PILOT, "--measured", "412", "--loss", "2.31,2.12,2.05")
    assert (falls.code, "the loss falls" in falls.err) == (0, True)
    rises = shell(*PILOT, "--measured", "412", "--loss", "2.05,2.12,2.31")
    assert (rises.code, "does not fall (2.05 to 2.31)" in rises.err) == (1, True)


@pytest.mark.parametrize(
    ("usd", "verdict", "code"), [("400", "feasible", 0), ("270", "uncertain", 0), ("100", "not feasible", 1)]
)
def test_a_pilot_may_have_a_limit(shell: Shell, usd: str, verdict: str, code: int) -> None:
    ran = shell(*PILOT, "--measured", "412tok/s", "--max-cost", usd)
    assert (ran.code, f"{verdict} for ${float(usd):,.2f}" in ran.err) == (code, True)


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (("--measured", "quick"), "expected tokens per second"),
        (("--measured", "412", "--loss", "2"), "expected at least two values"),
        (("--measured", "412", "--loss", "2,x"), "expected at least two values"),
    ],
)
def test_a_wrong_pilot_is_one_line(shell: Shell, argv: tuple[str, ...], reported: str) -> None:
    ran = shell(*PILOT, *argv)
    assert (ran.code, ran.out, reported in ran.err) == (2, "", True)
    assert shell("plan", "pilot", "2x H100 @ 2 for 3h", "--tokens", "1M", "--measured", "9").code == 2
