"""`gpuwatch plan job`: the sources' figures, real offers by total job cost, and a watch by job cost."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch import bootstrap
from gpuwatch.emulator import Marketplace
from tests.checkout import TESTS
from tests.cli.conftest import Ran, Shell

JOB = ("plan", "job")
A100, H100 = "4x A100 @ 1.20 for 72h", "4x H100 @ 3.50 for 24h"
RECORDED = TESTS / "recorded" / "price-history" / "vastai-offers-2026-02-27_03-03.csv.gz"
TUNE = ("--hours", "72", "--on", "4x A100", "--speedup", "4x H100=3")


def costs(shell: Shell, *argv: str) -> list[Any]:
    found: list[Any] = shell(*JOB, *argv, "--json").json["candidates"]
    return found


@pytest.mark.parametrize("mode", [(), ("--seed",)])
def test_the_sources_comparison(shell: Shell, mode: tuple[str, ...]) -> None:
    a100, h100 = costs(shell, A100, H100, *mode)
    assert (a100["job_cost_usd"], h100["job_cost_usd"]) == (345.60, 336.00)
    assert h100["difference_usd"] == -9.60
    assert round(h100["break_even_speedup"], 4) == 2.9167


def test_with_twenty_percent_on_top(shell: Shell) -> None:
    a100, h100 = costs(shell, A100, H100, "--commission", "0.2")
    assert (a100["job_cost_usd"], h100["job_cost_usd"]) == (414.72, 403.20)
    assert h100["difference_usd"] == -11.52


@pytest.mark.parametrize(("speedup", "usd"), [("2.5", 403.20), ("2", 504.00), ("1.5", 672.00)])
def test_at_other_speed_ups(shell: Shell, speedup: str, usd: float) -> None:
    job = ("--hours", "72", "--on", "4x A100", "--speedup", f"4x H100={speedup}")
    assert costs(shell, "4x A100 @ 1.20", "4x H100 @ 3.50", *job)[1]["job_cost_usd"] == usd


def test_the_hyperscaler(shell: Shell) -> None:
    one, four = costs(shell, "1x H100 @ 8.00 for 72h", "4x H100 @ 8.00 for 72h")
    assert (one["job_cost_usd"], four["job_cost_usd"]) == (576.00, 2304.00)


def test_loading_costs_1_33_to_1_87_and_the_sources_slip_is_reported(shell: Shell) -> None:
    (h100,) = costs(shell, "4x H100 @ 4.00 for 24h", "--load", "5m-7m")
    assert [round(usd, 2) for usd in h100["load_usd"]] == [1.33, 1.87]
    assert h100["job_cost_usd"] == pytest.approx(384 + 4 * 4 * 7 / 60)
    ran = shell(*JOB, "4x H100 @ 4.00 for 24h", "--load", "5m-7m", "--seed")
    assert "384.00" in ran.out
    assert "1.33–1.87" in ran.err
    assert "2.33" in ran.err


def test_it_says_where_it_differs_from_the_sources(shell: Shell) -> None:
    ran = shell(*JOB, A100, H100, "--setup", "1h")
    assert "price × hours only, as the sources calculate (--seed): 345.60, 336.00" in ran.err
    assert "350.40" in ran.out
    assert "sources" not in shell(*JOB, A100, H100).err


def test_measured_speeds_give_a_range(shell: Shell) -> None:
    options = ("--tokens", "10M", "--tokens-per-s", "4x RTX 4090=120-180", "--tokens-per-s", "2x H100=350-500")
    slow, quick = costs(shell, "4x RTX 4090 @ 0.40", "2x H100 @ 3.50", *options)
    assert slow["job_cost_low_usd"] < slow["job_cost_usd"]
    assert slow["hours"] == pytest.approx(10e6 / 120 / 3600)
    assert quick["hours_low"] == pytest.approx(10e6 / 500 / 3600)
    assert "–" in shell(*JOB, "4x RTX 4090 @ 0.40", *options).out


def test_an_interruption_loses_at_most_eight_dollars(shell: Shell) -> None:
    options = ("--spot", "only", "--interruptions-per-day", "4", "--checkpoint-every", "30m")
    ran = shell(*JOB, "8x H100 @ 2.00 for 100h", *options)
    assert "at most the work between two checkpoints: 8.00 $" in ran.err
    (found,) = costs(shell, "8x H100 @ 2.00 for 100h", *options)
    assert 0 < found["restarts_usd"] <= found["interruptions"] * 8.00


def test_credit_is_taken_off_at_the_end(shell: Shell) -> None:
    found = costs(shell, A100, "1x H100 @ 1.00 for 1h", "--credit", "300")
    assert [one["after_credit_usd"] for one in found] == pytest.approx([45.60, 0.0])
    assert "45.60" in shell(*JOB, A100, "--credit", "300").out


@pytest.fixture
def tune_market(market: Marketplace) -> Marketplace:
    market.publish(gpu="A100 SXM4", count=4, usd_hour=4.80)
    market.publish(gpu="H100 SXM", count=4, usd_hour=14.00)
    market.publish(gpu="RTX 4090", count=4, usd_hour=0.80)
    return market


def offers(ran: Ran) -> list[tuple[str, float]]:
    return [(one["gpu"], round(one["job_cost_usd"], 2)) for one in ran.json["offers"]]


def test_real_offers_by_the_jobs_cost_from_a_poll_and_then_from_the_store(
    shell: Shell, tune_market: Marketplace
) -> None:
    polled = shell(*JOB, *TUNE, "--poll", "--json", "--gpu", "A100", "--gpu", "H100", "--gpu", "RTX 4090")
    assert polled.code == 0, polled.err
    assert offers(polled) == [("H100 SXM", 403.20), ("A100 SXM 80GB", 414.72)]
    assert polled.json["samples"] == 3
    assert "neither a speedup of RTX 4090" in polled.json["refused"][0]["reason"]
    shell("check", "--gpu", "A100", "--gpu", "H100", "--max-price", "9", "--count", "4")
    stored = shell(*JOB, *TUNE, "--json")
    assert offers(stored) == [("H100 SXM", 403.20), ("A100 SXM 80GB", 414.72)]
    assert stored.json["source"] == "the store"
    assert stored.json["since"].endswith("Z")


def test_the_lowest_hour_is_held_against_the_lowest_job(shell: Shell, tune_market: Marketplace) -> None:
    ran = shell(*JOB, *TUNE, "--poll", "--gpu", "A100", "--gpu", "H100")
    assert "the lowest GPU price (4× A100 SXM 80GB" in ran.err
    assert "would cost 11.52 $ more for this job" in ran.err


def test_the_disk_is_priced_at_the_size_that_is_said(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="A100 SXM4", count=4, usd_hour=4.80, storage_cost=0.2, disk_space=3000.0)
    shell("check", "--gpu", "A100", "--max-price", "9", "--count", "4")
    for source in ((), ("--poll", "--gpu", "A100")):
        small = shell(*JOB, *TUNE, *source, "--json").json["offers"][0]
        large = shell(*JOB, *TUNE, *source, "--disk-gb", "2000", "--json").json["offers"][0]
        dearer = large["job_cost_usd"] - small["job_cost_usd"]
        assert dearer > 0
        assert large["disk_usd"] - small["disk_usd"] == pytest.approx(dearer, abs=0.001)
    ran = shell(*JOB, *TUNE, "--poll", "--gpu", "A100", "--disk-gb", "4000")
    assert ran.code == 1
    assert "less than 4000 GB of free disk" in ran.err


def test_old_prices_are_reported(shell: Shell, market: Marketplace, monkeypatch: pytest.MonkeyPatch) -> None:
    market.publish(gpu="A100 SXM4", count=4, usd_hour=4.80)
    shell("check", "--gpu", "A100", "--max-price", "9", "--count", "4")
    later = bootstrap.real_now() + timedelta(hours=4)
    monkeypatch.setattr(bootstrap, "real_now", lambda: later)
    ran = shell(*JOB, *TUNE)
    assert "these prices are outdated: fetch current ones with --poll" in ran.err


@pytest.mark.parametrize("content", [b"", b"not,a,price\n1,2,3\n", b"\x1f\x8bxx", b"\xff\xfe\x00"])
def test_a_file_that_holds_no_prices_is_one_line(shell: Shell, content: bytes) -> None:
    path = shell.folder / "prices.csv"
    path.write_bytes(content)
    ran = shell(*JOB, *TUNE, "--data", str(path))
    assert ran.code in {2, 3}
    assert "prices.csv" in ran.err
    assert "Traceback" not in ran.err


def test_an_empty_store_is_no_answer(shell: Shell) -> None:
    shell.new_store()
    ran = shell(*JOB, *TUNE)
    assert ran.code == 3
    assert "fetch current ones" in ran.err


def test_a_job_that_fits_no_offer_is_reported(shell: Shell, tune_market: Marketplace) -> None:
    ran = shell(*JOB, *TUNE, "--poll", "--gpu", "A100", "--memory-gb", "9000")
    assert ran.code == 1
    assert "do not hold 9,000 GB" in ran.err


def test_slow_offers_are_left_out(shell: Shell, tune_market: Marketplace) -> None:
    ran = shell(*JOB, *TUNE, "--poll", "--gpu", "A100", "--gpu", "H100", "--within", "30h", "--json")
    assert offers(ran) == [("H100 SXM", 403.20)]
    assert ran.json["refused"] == [{"reason": "it takes longer than 30 h", "offers": 1}]


def test_a_provider_that_does_not_answer_is_reported(shell: Shell, market: Marketplace) -> None:
    market.faults.add("search", "502", times=None)
    ran = shell(*JOB, *TUNE, "--poll", "--timeout", "20s")
    assert ran.code == 3
    assert "vastai:" in ran.err


def test_on_the_public_prices(shell: Shell) -> None:
    options = ("--size-of", "8B", "--method", "lora", "--tokens", "50M", "--utilisation", "0.35-0.4")
    ran = shell(*JOB, *options, "--data", str(RECORDED), "--json", "--limit", "5000")
    assert ran.code == 0, ran.err
    found = ran.json["offers"]
    assert len(found) > 50
    assert found == sorted(found, key=lambda one: (one["too_cheap"], one["job_cost_usd"]))
    assert all(one["gpu_count"] * one["gpu_memory_gib"] > 20 for one in found)
    assert ran.json["samples"] == len(found) + sum(one["offers"] for one in ran.json["refused"])


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        ((), "the duration is missing: use"),
        (("--hours", "72"), "--hours requires the GPUs it refers to, such"),
        (("--tokens", "1B"), "use --tokens-per-s, or the model's size with --size-of"),
        (("--tokens", "1B", "--hours", "3", "--on", "A100"), "use either --hours or --tokens"),
        ((*TUNE, "--spot", "any"), "--spot requires"),
        ((*TUNE, "--seed"), "--seed requires candidates"),
        (("4x A100",), "expected cards at a price"),
        (("4x A100 @ 1.20",), "neither hours nor tokens are set"),
        (("4x NoCard @ 1.20 for 3h",), "expected GPUs such as"),
        ((A100, "--poll"), "--poll requires real offers"),
        ((A100, "--interruptions-per-day", "3"), "--interruptions-per-day requires --spot only"),
        ((A100, "--spot", "only"), "--spot requires --interruptions-per-day (0: never)"),
        ((A100, "--gpu", "H100"), "--gpu requires real offers"),
        ((A100, "--speedup", "4x H100"), "expected GPUs and a number"),
        ((A100, "--image-gb", "lots"), "--image-gb 'lots': expected a number"),
        ((A100, "--load", "5"), "--load: expected a duration"),
        ((A100, "--hours", "x"), "--hours: expected a number"),
        ((A100, "--utilisation", "40"), "--utilisation"),
        ((A100, "--size-of", "70B", "--precision", "int4"), "cannot be trained"),
        ((A100, "--size-of", "nope"), "--size-of: expected a number of parameters"),
        (("1x T4 @ 1 for 3h", "--size-of", "70B"), "do not hold"),
    ],
)
def test_wrong_options_are_one_line(shell: Shell, argv: tuple[str, ...], reported: str) -> None:
    ran = shell(*JOB, *argv)
    assert ran.code == 2
    assert reported in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


WATCH = """
[[watch]]
name = "tune"
gpu = ["A100 SXM 80GB", "H100"]
gpu_count = 4
max_job_cost = {most}
[watch.job]
hours = 72
on = "4x A100"
speedup = {{ "4x H100" = 3 }}
"""


def test_a_watch_by_its_jobs_cost_is_checked(shell: Shell, tune_market: Marketplace) -> None:
    shell.settings(WATCH.format(most=410))
    ran = shell("check", "--json")
    assert ran.code == 0, ran.err
    (watch,) = ran.json["watches"]
    assert (watch["max_price"], watch["max_job_cost_usd"]) == (None, 410.0)
    assert [(one["gpu"], one["job_cost_usd"]) for one in watch["offers"]] == [("H100 SXM", 403.2)]
    shown = shell("check", "--explain")
    assert "tune: A100 SXM 80GB, H100 at or under 410 $ for the job" in shown.out
    assert "$ job" in shown.out
    assert "403.20" in shown.out
    assert "max_job_cost: 414.72 > 410.00" in shown.err
    shell.settings(WATCH.format(most=400))
    assert shell("check").code == 1


def test_without_a_utilisation_the_speed_comes_from_published_measurements(shell: Shell) -> None:
    options = ("--size-of", "8B", "--method", "qlora", "--tokens", "100M", "--data", str(RECORDED), "--json")
    estimated, said = shell("plan", "job", *options), shell("plan", "job", *options, "--utilisation", "0.05-0.35")
    assert "published measurements" in estimated.err
    assert "published measurements" not in said.err
    assert all(one["hours_low"] < one["hours"] for one in estimated.json["offers"])
    how = [one["hours_from"] for one in estimated.json["offers"]]
    assert all("tok/s, from" in text or "tok/s, as measured" in text for text in how)
    assert "TFLOP/s" in said.json["offers"][0]["hours_from"]


def test_what_the_sources_measured_lies_within_the_range(shell: Shell) -> None:
    """70B by QLoRA on two H100 with NVLink: 350 to 500 tokens a second, 55.6 to 79.4 h for 100M tokens."""
    options = ("--size-of", "70B", "--method", "qlora", "--tokens", "100M", "--json")
    (one,) = shell("plan", "job", "2x H100 SXM @ 3.50", *options).json["candidates"]
    assert (round(one["hours_low"], 1), round(one["hours"], 1)) == (55.6, 79.4)
    assert "as measured: The articles' own measurement" in one["hours_from"]
    (slow,) = shell("plan", "job", "4x RTX 4090 @ 0.40", *options).json["candidates"]
    assert (round(slow["hours_low"], 1), round(slow["hours"], 1)) == (154.3, 231.5)  # 120 to 180 tokens a second


def test_writing_text_is_bound_by_memory_and_agrees_with_plan_fit(shell: Shell) -> None:
    options = ("--method", "inference", "--size-of", "8B", "--tokens", "50M", "--json")
    (one,) = shell("plan", "job", "1x H100 SXM @ 2.00", *options).json["candidates"]
    fits = shell("plan", "fit", "--task", "inference", "--size-of", "8B", "--price", "H100 SXM=2.00", "--json").json
    assert one["hours_low"] == pytest.approx(50e6 * fits["choices"][0]["token_ms"] / 1000 / 3600, rel=1e-6)
    assert one["hours"] == pytest.approx(50e6 * fits["choices"][0]["token_ms_high"] / 1000 / 3600, rel=1e-6)
    assert one["hours_low"] > 50, "at a batch of 1 each token reads all weights"
    (many,) = shell("plan", "job", "1x H100 SXM @ 2.00", *options, "--batch", "64").json["candidates"]
    assert many["hours_low"] < one["hours_low"] / 20


def test_a_task_of_inference_is_not_sized_as_training(shell: Shell) -> None:
    found = shell("plan", "fit", "--task", "inference", "--size-of", "8B", "--price", "H100 SXM=2.00", "--json").json
    assert found["vram_gb"] < 20
    both = shell("plan", "fit", "--task", "inference", "--size-of", "8B", "--method", "full", "--price", "H100 SXM=2")
    assert (both.code, "conflicts with" in both.err) == (2, True)


@pytest.mark.parametrize(("usd", "verdict"), [("600", "feasible"), ("450", "uncertain"), ("100", "not feasible")])
def test_a_highest_cost_says_whether_the_job_is_feasible(shell: Shell, usd: str, verdict: str) -> None:
    argv = ("plan", "job", "2x H100 SXM @ 3.50", "--size-of", "70B", "--method", "qlora", "--tokens", "100M")
    ran = shell(*argv, "--max-cost", usd)
    assert f"{verdict} for {float(usd):,.2f} $: it costs 388.89–555.56 $" in ran.err
    assert shell(*argv, "--max-cost", usd, "--json").json["feasible"] == verdict


def test_a_price_far_under_that_of_its_gpu_is_marked_and_ranked_last(shell: Shell, tmp_path: Path) -> None:
    prices = [0.112, 1.0, 1.1, 1.2, 1.3, 1.4]
    rows = [f"2026-03-01T00:00:00Z,market,{n},EU,A100 SXM,1,80,false,{price}" for n, price in enumerate(prices)]
    data = tmp_path / "trap.csv"
    columns = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
    data.write_text("\n".join([columns, *rows]) + "\n")
    argv = ("plan", "job", "--size-of", "8B", "--method", "qlora", "--tokens", "100M", "--data", str(data))
    offers = shell(*argv, "--json").json["offers"]
    assert [(one["price_usd_gpu_hour"], one["too_cheap"]) for one in (offers[0], offers[-1])] == [
        (1.0, False),
        (0.112, True),
    ]
    assert "too cheap" in shell(*argv).out
