"""The cost of a job as the keys of `gpuwatch plan job` state it: on candidates, and on offers of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.app.plan.plan_job import OfferPlan, job_verdict, plan_on_hardware, plan_on_offers
from gpuwatch.app.plan.plan_job_json import hardware_plan_json, offer_plan_json
from gpuwatch.app.plan.plan_request import job_request
from gpuwatch.errors import UsageError
from gpuwatch.settings import Settings, load
from tests.checkout import ROOT, TESTS

A100 = "4x A100 @ 1.20 for 72h"
TUNE = {"hours": "72", "on": "4x A100", "speedup": "4x H100=3"}
SEVENTY = {"model": "70B", "method": "qlora", "tokens": "100M"}
EIGHT = {"model": "8B", "method": "qlora", "tokens": "100M"}
COLUMNS = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
RECORDED = TESTS / "recorded" / "price-history" / "vastai-offers-2026-02-27_03-03.csv.gz"
MARKET = [f"{n},EU,H100 SXM,2,80,false,{7 + n / 10}" for n in range(6)]
TRAP = "9,EU,H100 SXM,2,80,false,0.40"


def costs(*candidates: str, **keys: Any) -> list[dict[str, Any]]:
    request = job_request({"candidates": candidates, **keys})
    found: list[dict[str, Any]] = hardware_plan_json(request, plan_on_hardware(request))["candidates"]
    return found


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "gpuwatch.toml").write_text("[providers.vastai]\n")
    return load(cwd=tmp_path)


class Market:
    """Rows of a file of prices, as the offers of now."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._data = settings, folder / "market.csv"

    def sells(self, rows: Sequence[str]) -> None:
        lines = [COLUMNS, *(f"2026-03-01T00:00:00Z,market,{row}" for row in rows)]
        self._data.write_text("\n".join(lines) + "\n")

    def plan(self, **keys: Any) -> OfferPlan:
        return plan_on_offers(self._settings, job_request({"data": str(self._data), **keys}))

    def json(self, **keys: Any) -> dict[str, Any]:
        return offer_plan_json(job_request({"data": str(self._data), **keys}), self.plan(**keys))

    def verdict(self, **keys: Any) -> str | None:
        plan = self.plan(**keys)
        return job_verdict(job_request(keys), plan.spec, plan.costs)


@pytest.fixture
def market(settings: Settings, tmp_path: Path) -> Market:
    return Market(settings, tmp_path)


# --- on candidates ----------------------------------------------------------------------------------------------------


def test_credit_is_taken_off_at_the_end() -> None:
    found = costs(A100, "1x H100 @ 1.00 for 1h", credit=300)
    assert [one["after_credit_usd"] for one in found] == pytest.approx([45.60, 0.0])


def test_a_load_is_a_cost_of_its_own_and_part_of_the_job() -> None:
    (h100,) = costs("4x H100 @ 4.00 for 24h", load="5m-7m")
    assert [round(usd, 2) for usd in h100["load_usd"]] == [1.33, 1.87]
    assert h100["job_cost_usd"] == pytest.approx(384 + 4 * 4 * 7 / 60)


def test_an_interruption_loses_at_most_eight_dollars() -> None:
    keys = {"spot": "only", "interruptions_per_day": 4, "checkpoint_every": "30m"}
    (found,) = costs("8x H100 @ 2.00 for 100h", **keys)
    assert 0 < found["restarts_usd"] <= found["interruptions"] * 8.00


def test_samples_epochs_and_tokens_multiply() -> None:
    keys = {"model": "70B", "method": "qlora"}
    (one,) = costs("2x H100 SXM @ 3.50", **keys, samples="50k", tokens_per_sample="1000", epochs="2")
    (same,) = costs("2x H100 SXM @ 3.50", **keys, tokens="100M")
    assert one == same


def test_people_and_a_cheap_machine_for_preparation_are_lines_of_the_bill() -> None:
    (one,) = costs(A100, engineer_hours=3, engineer_usd_hour=60, prepare_hours=10)
    assert (one["labour_usd"], one["prepare_usd"]) == (180, 1)
    assert one["job_cost_usd"] == pytest.approx(345.60 + 180 + 1)
    assert one["job_cost_low_usd"] == pytest.approx(345.60 + 180 + 0.3)  # the articles: 0.03 to 0.10 an hour


def test_levers_on_memory_cost_speed() -> None:
    keys = {"model": "8B", "method": "lora", "tokens": "100M", "memory_gb": 0}
    (plain,) = costs("1x RTX 4090 @ 0.40", **keys)
    (offloaded,) = costs("1x RTX 4090 @ 0.40", **keys, offload=True)
    assert offloaded["hours"] == pytest.approx(plain["hours"] / 0.5)
    assert offloaded["hours_low"] == pytest.approx(plain["hours_low"] / 0.7)
    (kept,) = costs("1x RTX 4090 @ 0.40", **keys, recompute=False)
    assert kept["hours"] == pytest.approx(plain["hours"] / 1.25)


def test_prompts_are_read_before_an_answer_is_written() -> None:
    keys = {"model": "8B", "method": "inference", "tokens": "1M", "batch": 64}
    (wrote,), (read_too,) = (costs("1x H100 SXM @ 2.00", **keys, **more) for more in ({}, {"prompt_tokens": "100M"}))
    assert wrote["hours"] + 0.5 < read_too["hours"] < wrote["hours"] + 10


def test_what_the_sources_measured_lies_within_the_range() -> None:
    """70B by QLoRA on two H100 with NVLink: 350 to 500 tokens a second, 55.6 to 79.4 h for 100M tokens."""
    (one,) = costs("2x H100 SXM @ 3.50", **SEVENTY)
    assert (round(one["hours_low"], 1), round(one["hours"], 1)) == (55.6, 79.4)
    assert "as measured: The articles' own measurement" in one["hours_from"]
    (slow,) = costs("4x RTX 4090 @ 0.40", **SEVENTY)
    assert (round(slow["hours_low"], 1), round(slow["hours"], 1)) == (154.3, 231.5)  # 120 to 180 tokens a second


@pytest.mark.parametrize("how", [{"method": "full"}, {"method": "lora"}, {"method": "inference"}, {"utilisation": 0.4}])
@pytest.mark.parametrize("card", ["1x H100 SXM @ 2.00", "1x A100 SXM 80GB @ 1.00", "1x V100 SXM2 32GB @ 0.50"])
def test_work_in_32_bits_takes_at_least_twice_as_long(card: str, how: dict[str, Any]) -> None:
    """Half the 16-bit rate with TF32, about a quarter before Ampere; and twice the bytes per weight."""
    keys = {"model": "1B", "tokens": "1B", "memory_gb": 0, **how}
    (half,), (full,) = (costs(card, **keys, precision=precision) for precision in ("fp16", "fp32"))
    least = (
        3.6 if "V100" in card and "inference" not in how.values() else 1.8
    )  # the nearest measurements differ slightly
    assert full["hours"] >= least * half["hours"]
    assert full["hours_low"] >= least * half["hours_low"]


def test_kept_activations_cost_what_the_page_states() -> None:
    """34 bytes per token, width and layer instead of 2, and one full layer."""
    page = " ".join((ROOT / "docs" / "plan.md").read_text().split())
    assert "11 times as much for 32 layers and 14 times for 80" in page
    for layers, times in ((32, 11), (80, 14)):
        assert round(34 * layers / (2 * layers + 34)) == times


@pytest.mark.parametrize(("usd", "verdict"), [(600, "feasible"), (450, "uncertain"), (100, "not feasible")])
def test_a_highest_cost_says_whether_the_job_is_feasible(usd: float, verdict: str) -> None:
    """It costs 388.89 to 555.56 $."""
    request = job_request({"candidates": "2x H100 SXM @ 3.50", **SEVENTY, "max_cost": usd})
    plan = plan_on_hardware(request)
    assert job_verdict(request, plan.spec, [one.cost for one in plan.compared]) == verdict


# --- on offers --------------------------------------------------------------------------------------------------------


def test_what_a_model_moves_and_stores_follows_from_it(market: Market) -> None:
    """70B in 16 bits are 140 GB, which load in 5 to 7 minutes according to the articles."""
    market.sells(["1,EU,H100 SXM,2,80,false,7.00"])
    found = market.json(**SEVENTY)
    assert found["derived"] == ["download_gb", "disk_gb", "load_s"]
    assert (found["download_gb"], found["disk_gb"]) == (pytest.approx(140.4), 170)
    assert found["load_s"] == pytest.approx([300, 420])
    assert found["offers"][0]["ready_usd"] == pytest.approx(7.0 * 7 / 60)
    stated = market.json(**SEVENTY, load="1m", disk_gb=9, download_gb=0)
    assert (stated["derived"], stated["disk_gb"], stated["download_gb"]) == ([], 9, 0)
    assert market.json(**SEVENTY, preloaded=True)["download_gb"] == pytest.approx(0.4)


@pytest.mark.parametrize(("within", "verdict"), [("80h", "feasible"), ("60h", "uncertain"), ("50h", "not feasible")])
def test_the_longest_time_is_compared_with_the_worst_case(market: Market, within: str, verdict: str) -> None:
    """It takes 55.6 to 79.4 h."""
    market.sells(["1,EU,H100 SXM,2,80,false,7.00"])
    assert market.verdict(**SEVENTY, load="1s", within=within) == verdict


def test_slow_offers_are_left_out(market: Market) -> None:
    market.sells(["1,EU,A100 SXM,4,80,false,4.80", "2,EU,H100 SXM,4,80,false,14.00", "3,EU,RTX 4090,4,24,false,0.80"])
    found = market.json(**TUNE, within="30h")
    assert [(one["gpu"], round(one["job_cost_usd"], 2)) for one in found["offers"]] == [("H100 SXM", 336.0)]
    reasons = {one["reason"]: one["offers"] for one in found["refused"]}
    assert reasons["it takes longer than 30 h"] == 1
    assert any("neither a speedup of RTX 4090" in reason for reason in reasons)


def test_on_the_public_prices(settings: Settings) -> None:
    request = job_request(
        {"model": "8B", "method": "lora", "tokens": "50M", "utilisation": "0.35-0.4", "data": str(RECORDED),
         "limit": 5000}
    )  # fmt: skip
    plan = offer_plan_json(request, plan_on_offers(settings, request))
    found = plan["offers"]
    assert len(found) > 50
    assert found == sorted(found, key=lambda one: (one["too_cheap"], one["job_cost_usd"]))
    assert all(one["gpu_count"] * one["gpu_memory_gib"] > 20 for one in found)
    assert plan["samples"] == len(found) + sum(one["offers"] for one in plan["refused"])


def test_without_a_utilisation_the_speed_comes_from_published_measurements(settings: Settings) -> None:
    keys = {**EIGHT, "data": str(RECORDED)}
    estimated, stated = (
        offer_plan_json(request, plan_on_offers(settings, request))["offers"]
        for request in (job_request(keys), job_request({**keys, "utilisation": "0.05-0.35"}))
    )
    assert all(one["hours_low"] < one["hours"] for one in estimated)
    assert all("tok/s, from" in one["hours_from"] or "tok/s, as measured" in one["hours_from"] for one in estimated)
    assert "TFLOP/s" in stated[0]["hours_from"]


# --- implausibly cheap prices -----------------------------------------------------------------------------------------


def test_a_trap_is_marked_although_nobody_else_offers_its_gpu(market: Market) -> None:
    """An A100 at 0.112 among H100s: far below them for its computing power."""
    market.sells(["9,EU,A100 PCIE,1,40,false,0.112", *(f"{n},EU,H100 SXM,1,80,false,{2 + n / 10}" for n in range(6))])
    offers = market.json(**EIGHT)["offers"]
    assert [one["price_usd_gpu_hour"] for one in offers if one["too_cheap"]] == [0.112]
    assert offers[-1]["too_cheap"]


def test_no_verdict_rests_on_a_trap(market: Market) -> None:
    """55.6 to 79.4 hours: at 0.40 an hour it would be 32 $, on the market 389 and more."""
    market.sells([TRAP, *MARKET])
    assert market.verdict(**SEVENTY, max_cost=100, within="90h") == "not feasible"
    assert market.verdict(**SEVENTY, max_cost=100, within="60h") == "not feasible", "nor on one that may be late"
    assert market.verdict(**SEVENTY, max_cost=100, any_price=True) == "feasible"
    offers = market.json(**SEVENTY, any_price=True)["offers"]
    assert offers[0]["price_usd_hour"] == 0.40
    assert not any(one["too_cheap"] for one in offers)


def test_what_a_price_is_compared_with_is_the_market_and_not_what_fits_the_job(market: Market) -> None:
    """Single GPUs cannot hold the job, but still show the normal price."""
    market.sells([TRAP, *(f"{n},EU,H100 SXM,1,80,false,{3.5 + n / 10}" for n in range(6))])
    offers = market.json(**SEVENTY | {"method": "lora"}, memory_gb=150)["offers"]
    assert [(one["gpu_count"], one["too_cheap"]) for one in offers] == [(2, True)]


# --- what is wrong, or would have no effect ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "reported"),
    [
        ({}, "the duration is missing: use"),
        ({"hours": "72"}, "--hours requires the GPUs it refers to, such"),
        ({"tokens": "1B"}, "use tokens_per_s, or the model's size with --size-of"),
        ({"tokens": "1B", "hours": "3", "on": "A100"}, "use either --hours or --tokens"),
        ({**TUNE, "spot": "any"}, "--spot requires"),
        ({"candidates": "4x A100"}, "expected cards at a price"),
        ({"candidates": "4x A100 @ 1.20"}, "neither hours nor tokens are set"),
        ({"candidates": "4x NoCard @ 1.20 for 3h"}, "expected GPUs such as"),
        ({"candidates": A100, "interruptions_per_day": 3}, "interruptions_per_day requires --spot only"),
        ({"candidates": A100, "spot": "only"}, "--spot requires interruptions_per_day (0: never)"),
        ({"candidates": A100, "gpu": "H100"}, "--gpu requires real offers"),
        ({"candidates": A100, "poll": True}, "--poll requires real offers"),
        ({"candidates": A100, "limit": 3}, "limit requires real offers"),
        ({"candidates": A100, "timeout": "9s"}, "timeout requires real offers"),
        ({"candidates": A100, "listed": True}, "listed requires real offers"),
        ({"candidates": A100, "any_price": True}, "any_price requires real offers: omit the candidates"),
        ({"candidates": A100, "tokens": "1M"}, "each candidate has its own hours: omit --tokens"),
        ({"candidates": A100, "batch": 4}, "batch requires a model"),
        ({"candidates": A100, "epochs": 3}, "epochs requires samples"),
        ({"candidates": A100, "engineer_hours": 3}, "requires engineer_usd_hour"),
        ({"candidates": A100, "speedup": "4x H100"}, "expected GPUs and a number"),
        ({"candidates": A100, "image_gb": "lots"}, "image_gb: expected a number"),
        ({"candidates": A100, "load": "5"}, "load: expected a duration"),
        ({"candidates": A100, "hours": "x"}, "--hours: expected a number"),
        ({"candidates": A100, "utilisation": 40}, "utilisation: expected a share"),
        ({"candidates": A100, "model": "70B", "precision": "int4"}, "cannot be trained"),
        ({"candidates": A100, "model": "nope"}, "--size-of: expected a number of parameters"),
        ({"candidates": "1x T4 @ 1 for 3h", "model": "70B"}, "do not hold"),
        ({**TUNE, "commission": 0.2}, "commission applies to candidates only"),
        ({**TUNE, "min_billing": "1h"}, "min_billing applies to candidates only"),
        ({**TUNE, "timeout": "9s"}, "timeout requires --poll"),
        ({**TUNE, "poll": True, "data": "prices.csv"}, "--poll cannot be combined with data"),
        ({**TUNE, "interruptions_per_day": 3}, "interruptions_per_day requires --spot"),
        ({**SEVENTY, "on": "4x A100"}, "on requires --hours"),
        ({**SEVENTY, "master": False}, "master requires --method full"),
        ({**SEVENTY, "prompt_tokens": "5M"}, "prompt_tokens requires --method inference"),
        ({**SEVENTY, "samples": "5k"}, "samples and tokens_per_sample require each other"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_would_be_ignored_is_one_line(settings: Settings, keys: dict[str, Any], reported: str) -> None:
    def plan() -> None:
        request = job_request(keys)
        if request.candidates:
            plan_on_hardware(request)
        else:
            plan_on_offers(settings, request)

    with pytest.raises(UsageError) as raised:
        plan()
    assert reported in str(raised.value)
    assert "\n" not in str(raised.value)
