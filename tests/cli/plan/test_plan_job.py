"""`gpuwatch plan job` as a user types it; its figures are in tests/app/plan and tests/domain/plan."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch import bootstrap
from gpuwatch.emulator import Marketplace
from tests.cli.conftest import Ran, Shell

JOB = ("plan", "job")
A100, H100 = "4x A100 @ 1.20 for 72h", "4x H100 @ 3.50 for 24h"
TUNE = ("--hours", "72", "--set", "on=4x A100", "--set", "speedup=4x H100=3")
SEVENTY = ("--size-of", "70B", "--method", "qlora", "--tokens", "100M")


def test_the_sources_comparison(shell: Shell) -> None:
    ran = shell(*JOB, A100, H100)
    assert {"$345.60", "$336.00", "-$9.60", "2.9167×"} <= set(ran.out.split())
    assert ran.out.startswith("4x H100 is the cheapest: $336.00 for the job, in 24.0 h, 3 % less than")
    assert "sources" not in ran.err
    found = shell(*JOB, A100, H100, "--set", "commission=0.2", "--json").json["candidates"]
    assert [one["job_cost_usd"] for one in found] == [414.72, 403.20]


def test_it_says_where_it_differs_from_the_sources(shell: Shell) -> None:
    more = ("--set", "setup=1h", "--set", "engineer_hours=1", "--set", "engineer_usd_hour=9", "--set", "credit=300")
    ran = shell(*JOB, A100, H100, *more)
    assert "price × hours only, as the sources calculate: $345.60, $336.00" in ran.err
    assert {"people", "$359.40", "$59.40"} <= set(ran.out.split())  # 345.60 + 4.80 + 9.00, less the credit
    spot = ("--spot", "only", "--set", "interruptions_per_day=4", "--set", "checkpoint_every=30m")
    ran = shell(*JOB, "8x H100 @ 2.00 for 100h", *spot)
    assert "at most the work between two checkpoints: $8.00" in ran.err


def test_fp8_on_a_card_without_it_is_said_in_one_line(shell: Shell) -> None:
    keys = ("--size-of", "8B", "--tokens", "1B", "--set", "precision=fp8")
    ran = shell(*JOB, "1x A100 @ 1.20", *keys, "--set", "memory_gb=10")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "A100 SXM 80GB cannot train in fp8" in ran.err
    ran = shell(*JOB, "1x A100 @ 1.20", *keys, "--method", "inference")
    assert (ran.code, "weights in fp8, arithmetic in 16 bits" in ran.err) == (0, True)
    assert "arithmetic in 16 bits" not in shell(*JOB, "1x H100 @ 1.20", *keys, "--method", "inference").err


def test_a_verdict_is_printed_and_is_the_exit_code(shell: Shell) -> None:
    for under, by, verdict, code in (("600", "80h", "feasible", 0), ("600", "60h", "uncertain", 0)):
        ran = shell(*JOB, "2x H100 SXM @ 3.50", *SEVENTY, "--under", under, "--by", by)
        figures = f"for $600.00 within {by[:-1]} h: it costs $388.89–$555.56, it takes 55.6–79.4 h"
        assert (ran.code, f"{verdict} {figures}" in ran.err) == (code, True)
    ran = shell(*JOB, "2x H100 SXM @ 3.50", *SEVENTY, "--under", "100", "--json")
    assert (ran.code, ran.json["feasible"]) == (1, "not feasible")
    assert "published measurements" in ran.err


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
    shown = shell(*JOB, *TUNE, "--poll", "--gpu", "A100", "--gpu", "H100")
    assert "the lowest GPU price (4× A100 SXM 80GB" in shown.err
    assert "would cost $11.52 more for this job" in shown.err


def test_the_disk_is_priced_at_the_size_that_is_said(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="A100 SXM4", count=4, usd_hour=4.80, storage_cost=0.2, disk_space=3000.0)
    shell("check", "--gpu", "A100", "--max-price", "9", "--count", "4")
    for source in ((), ("--poll", "--gpu", "A100")):
        small = shell(*JOB, *TUNE, *source, "--json").json["offers"][0]
        large = shell(*JOB, *TUNE, *source, "--set", "disk_gb=2000", "--json").json["offers"][0]
        dearer = large["job_cost_usd"] - small["job_cost_usd"]
        assert dearer > 0
        assert large["disk_usd"] - small["disk_usd"] == pytest.approx(dearer, abs=0.001)
    ran = shell(*JOB, *TUNE, "--poll", "--gpu", "A100", "--set", "disk_gb=4000")
    assert ran.code == 1
    assert "less than 4000 GB of free disk" in ran.err


def test_an_offer_whose_host_is_likely_to_fail_is_ranked_last(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=2, usd_hour=7.00, reliability=0.74, disk_space=500)
    market.publish(gpu="H100 SXM", count=2, usd_hour=8.00, reliability=0.99, disk_space=500)
    asked = (*JOB, *SEVENTY, "--gpu", "H100", "--poll")
    found = shell(*asked, "--json").json["offers"]
    assert [(one["reliability"], one["unlikely"]) for one in found] == [(0.99, False), (0.74, True)]
    assert found[1]["chance_to_finish"] == pytest.approx(0.74 ** (found[1]["hours"] / 24))
    shown = shell(*asked)
    assert "unlikely to finish" in shown.out
    assert {"reliab.", "verified", "until", "link", "but"} <= set(shown.out.splitlines()[3].split())
    assert "NVLink" in shown.out
    assert "170 GB of disk (disk_gb)" in shown.err
    kept = shell(*asked, "--json", "--set", "checkpoint_every=1h").json
    assert [one["unlikely"] for one in kept["offers"]] == [False, False]


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
    ran = shell(*JOB, *TUNE, "--set", f"data={path}")
    assert ran.code in {2, 3}
    assert "prices.csv" in ran.err
    assert "Traceback" not in ran.err


def test_what_cannot_be_answered_is_exit_code_3(shell: Shell, market: Marketplace) -> None:
    shell.new_store()
    ran = shell(*JOB, *TUNE)
    assert (ran.code, "fetch current ones" in ran.err) == (3, True)
    market.faults.add("search", "502", times=None)
    ran = shell(*JOB, *TUNE, "--poll", "--set", "timeout=20s")
    assert (ran.code, "vastai:" in ran.err) == (3, True)


def test_a_job_that_fits_no_offer_is_reported(shell: Shell, tune_market: Marketplace) -> None:
    ran = shell(*JOB, *TUNE, "--poll", "--gpu", "A100", "--set", "memory_gb=9000")
    assert ran.code == 1
    assert "do not hold 9,000 GB" in ran.err


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
    assert "at or under $410.00 for the job" in shown.out
    assert "$403.20" in shown.out
    assert "max_job_cost: 414.72 > 410.00" in shown.err
    shell.settings(WATCH.format(most=400))
    assert shell("check").code == 1


def test_writing_text_is_bound_by_memory_and_agrees_with_plan_fit(shell: Shell) -> None:
    options = ("--method", "inference", "--size-of", "8B", "--tokens", "50M", "--json")
    (one,) = shell(*JOB, "1x H100 SXM @ 2.00", *options).json["candidates"]
    fits = shell("plan", "fit", "--task", "inference", "--size-of", "8B", "--price", "H100 SXM=2.00", "--json").json
    assert one["hours_low"] == pytest.approx(50e6 * fits["choices"][0]["token_ms"] / 1000 / 3600, rel=1e-6)
    assert one["hours"] == pytest.approx(50e6 * fits["choices"][0]["token_ms_high"] / 1000 / 3600, rel=1e-6)
    assert one["hours_low"] > 50, "at a batch of 1 each token reads all weights"
    (many,) = shell(*JOB, "1x H100 SXM @ 2.00", *options, "--set", "batch=64").json["candidates"]
    assert many["hours_low"] < one["hours_low"] / 20
    assert fits["vram_gb"] < 20, "a task of inference is not sized as training"


COLUMNS = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"


def test_a_price_far_under_that_of_its_gpu_is_marked_and_ranked_last(shell: Shell, tmp_path: Path) -> None:
    prices = [0.112, 1.0, 1.1, 1.2, 1.3, 1.4]
    rows = [f"2026-03-01T00:00:00Z,market,{n},EU,A100 SXM,1,80,false,{price}" for n, price in enumerate(prices)]
    data = tmp_path / "trap.csv"
    data.write_text("\n".join([COLUMNS, *rows]) + "\n")
    argv = ("--size-of", "8B", "--method", "qlora", "--tokens", "100M", "--set", f"data={data}")
    found: list[Any] = shell(*JOB, *argv, "--json").json["offers"]
    assert [(one["price_usd_gpu_hour"], one["too_cheap"]) for one in (found[0], found[-1])] == [
        (1.0, False),
        (0.112, True),
    ]
    assert "too cheap" in shell(*JOB, *argv).out
    fit = shell("plan", "fit", "--vram", "40", "--data", str(data))
    assert "too cheap" not in fit.out, "another offer of its class is preferred"
    asked = shell("plan", "fit", "--vram", "40", "--data", str(data), "--any-price", "--json").json["choices"]
    assert [one["price_usd_hour"] for one in asked] == [0.112]


def test_a_network_is_counted_in_samples(shell: Shell, tmp_path: Path) -> None:
    """ResNet-50, 90 epochs: NVIDIA took 14 h on one A100 with its evaluation, and 1.9 h on eight at 16,621 images/s."""
    (tmp_path / "resnet.json").write_text('{"model_type": "resnet"}')
    model = ("--size-of", str(tmp_path / "resnet.json"), "--method", "full", "--set", "recompute=false")
    work = (*model, "--set", "samples=1.28M", "--set", "epochs=90", "--set", "batch=256")
    one, eight = shell(*JOB, "1x A100 SXM 80GB @ 1", "8x A100 SXM 80GB @ 8", *work, "--json").json["candidates"]
    assert one["hours_low"] <= 12.95 <= one["hours"]
    assert eight["hours_low"] <= 1.93 <= eight["hours"] * 1.01
    stated = shell(*JOB, "1x A100 SXM 80GB @ 1", *work, "--set", "utilisation=0.194", "--json").json["candidates"]
    assert stated[0]["hours"] == pytest.approx(12.96, rel=0.01)
    measured = shell(*JOB, "1x A100 SXM 80GB @ 1", *work, "--set", "tokens_per_s=1x A100=2470", "--json")
    assert measured.json["candidates"][0]["hours"] == pytest.approx(12.96, rel=0.01)
    for keys, text in (
        (("--tokens", "1M"), "its work is not in tokens: set samples (a sample is an image of 224 × 224 pixels)"),
        (("--set", "samples=1M", "--tokens", "1M"), "samples have no tokens"),
        (("--set", "samples=1M", "--set", "tokens_per_sample=9"), "samples have no tokens"),
    ):
        ran = shell(*JOB, "1x H100 @ 2", *model, *keys)
        assert (ran.code, text in ran.err) == (2, True), ran.err
    (tmp_path / "whisper.json").write_text('{"model_type": "whisper"}')
    argv = ("--size-of", str(tmp_path / "whisper.json"), "--method", "inference", "--set", "samples=1k")
    assert "writes its words one after the other: state the hours" in shell(*JOB, "1x H100 @ 2", *argv).err
