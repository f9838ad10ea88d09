"""`gpuwatch plan job`: consequences of the model, doubts, options that would help, and options without effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Marketplace
from tests.checkout import ROOT
from tests.cli.conftest import Shell

JOB = ("plan", "job")
A100 = "4x A100 @ 1.20 for 72h"
TUNE = ("--hours", "72", "--on", "4x A100", "--speedup", "4x H100=3")
RIG = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
SEVENTY = ("--size-of", "70B", "--method", "qlora", "--tokens", "100M")


def costs(shell: Shell, *argv: str) -> list[Any]:
    found: list[Any] = shell(*JOB, *argv, "--json").json["candidates"]
    return found


def priced(tmp_path: Path, *rows: str) -> str:
    data = tmp_path / "market.csv"
    data.write_text("\n".join([RIG, *(f"2026-03-01T00:00:00Z,market,{row}" for row in rows)]) + "\n")
    return str(data)


def test_what_a_model_moves_and_stores_follows_from_it(shell: Shell, tmp_path: Path) -> None:
    """70B in 16 bits are 140 GB, which load in 5 to 7 minutes according to the articles."""
    data = priced(tmp_path, "1,EU,H100 SXM,2,80,false,7.00")
    found = shell("plan", "job", *SEVENTY, "--data", data, "--json").json
    assert found["derived"] == ["download_gb", "disk_gb", "load_s"]
    assert found["download_gb"] == pytest.approx(140.4)
    assert found["disk_gb"] == 170
    assert found["load_s"] == pytest.approx([300, 420])
    assert found["offers"][0]["ready_usd"] == pytest.approx(7.0 * 7 / 60)
    said = shell(
        "plan", "job", *SEVENTY, "--data", data, "--json", "--load", "1m", "--disk-gb", "9", "--download-gb", "0"
    )
    assert (said.json["derived"], said.json["disk_gb"], said.json["download_gb"]) == ([], 9, 0)
    kept = shell("plan", "job", *SEVENTY, "--data", data, "--json", "--preloaded").json
    assert kept["download_gb"] == pytest.approx(0.4)
    assert "170 GB of disk (--disk-gb)" in shell("plan", "job", *SEVENTY, "--data", data).err


def test_an_offer_whose_host_is_likely_to_fail_is_ranked_last(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=2, usd_hour=7.00, reliability=0.74, disk_space=500)
    market.publish(gpu="H100 SXM", count=2, usd_hour=8.00, reliability=0.99, disk_space=500)
    ran = shell("plan", "job", *SEVENTY, "--gpu", "H100", "--poll", "--json")
    assert ran.code == 0, ran.err
    assert [(one["reliability"], one["unlikely"]) for one in ran.json["offers"]] == [(0.99, False), (0.74, True)]
    assert ran.json["offers"][1]["chance_to_finish"] == pytest.approx(0.74 ** (ran.json["offers"][1]["hours"] / 24))
    shown = shell("plan", "job", *SEVENTY, "--gpu", "H100", "--poll").out
    assert "unlikely to finish" in shown
    assert {"reliab.", "verified", "until", "link", "but"} <= set(shown.splitlines()[1].split())
    assert "NVLink" in shown
    kept = shell("plan", "job", *SEVENTY, "--gpu", "H100", "--poll", "--json", "--checkpoint-every", "1h").json
    assert [one["unlikely"] for one in kept["offers"]] == [False, False]


def test_a_trap_is_marked_although_nobody_else_offers_its_gpu(shell: Shell, tmp_path: Path) -> None:
    """An A100 at 0.112 among H100s: far below them for its computing power."""
    h100 = [f"{n},EU,H100 SXM,1,80,false,{2 + n / 10}" for n in range(6)]
    data = priced(tmp_path, "9,EU,A100 PCIE,1,40,false,0.112", *h100)
    found = shell(
        "plan", "job", "--size-of", "8B", "--method", "qlora", "--tokens", "100M", "--data", data, "--json"
    ).json
    assert [one["price_usd_gpu_hour"] for one in found["offers"] if one["too_cheap"]] == [0.112]
    assert found["offers"][-1]["too_cheap"]


@pytest.mark.parametrize(
    ("within", "verdict", "code"), [("80h", "feasible", 0), ("60h", "uncertain", 0), ("50h", "not feasible", 1)]
)
def test_the_longest_time_is_compared_with_the_worst_case(
    shell: Shell, tmp_path: Path, within: str, verdict: str, code: int
) -> None:
    ran = shell("plan", "job", "2x H100 SXM @ 3.50", *SEVENTY, "--within", within)
    assert f"{verdict} within {within[:-1]} h: it takes 55.6–79.4 h" in ran.err
    assert ran.code == code
    data = priced(tmp_path, "1,EU,H100 SXM,2,80,false,7.00")
    found = shell("plan", "job", *SEVENTY, "--load", "1s", "--data", data, "--within", within, "--json")
    assert found.json["feasible"] == verdict
    assert found.code == (0 if verdict == "feasible" else 1)  # no offer is sure to be in time


def test_samples_epochs_and_tokens_multiply(shell: Shell) -> None:
    argv = ("2x H100 SXM @ 3.50", "--size-of", "70B", "--method", "qlora")
    (one,) = costs(shell, *argv, "--samples", "50k", "--tokens-per-sample", "1000", "--epochs", "2")
    (same,) = costs(shell, *argv, "--tokens", "100M")
    assert one == same


def test_people_and_a_cheap_machine_for_preparation_are_lines_of_the_bill(shell: Shell) -> None:
    more = ("--engineer-hours", "3", "--engineer-usd-hour", "60", "--prepare-hours", "10")
    (one,) = costs(shell, A100, *more)
    assert (one["labour_usd"], one["prepare_usd"]) == (180, 1)
    assert one["job_cost_usd"] == pytest.approx(345.60 + 180 + 1)
    assert one["job_cost_low_usd"] == pytest.approx(345.60 + 180 + 0.3)  # the articles: 0.03 to 0.10 an hour
    assert "people" in shell(*JOB, A100, *more).out


def test_levers_on_memory_cost_speed(shell: Shell) -> None:
    argv = ("1x RTX 4090 @ 0.40", "--size-of", "8B", "--method", "lora", "--tokens", "100M", "--memory-gb", "0")
    (plain,) = costs(shell, *argv)
    (offloaded,) = costs(shell, *argv, "--offload")
    assert offloaded["hours"] == pytest.approx(plain["hours"] / 0.5)
    assert offloaded["hours_low"] == pytest.approx(plain["hours_low"] / 0.7)
    (kept,) = costs(shell, *argv, "--keep-activations")
    assert kept["hours"] == pytest.approx(plain["hours"] / 1.25)
    sizes = [
        shell("plan", "size", "--params", "8B", "--batch", "8", *more, "--json").json["total_gb"]
        for more in ((), ("--micro-batch", "1"), ("--offload",))
    ]
    assert sizes[1] < sizes[0]
    assert sizes[2] == pytest.approx(sizes[0] - 8 * 12)  # AdamW's states, and the 32-bit copy


def test_prompts_are_read_before_an_answer_is_written(shell: Shell) -> None:
    argv = ("1x H100 SXM @ 2.00", "--size-of", "8B", "--method", "inference", "--tokens", "1M", "--batch", "64")
    (wrote,), (read_too,) = costs(shell, *argv), costs(shell, *argv, "--prompt-tokens", "100M")
    assert wrote["hours"] + 0.5 < read_too["hours"] < wrote["hours"] + 10


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (("job", A100, "--limit", "3"), "--limit requires real offers"),
        (("job", A100, "--timeout", "9s"), "--timeout requires real offers"),
        (("job", A100, "--listed"), "--listed requires real offers"),
        (("job", A100, "--tokens", "1M"), "each candidate has its own hours: omit --tokens"),
        (("job", A100, "--batch", "4"), "--batch requires a model"),
        (("job", A100, "--epochs", "3"), "--epochs requires --samples"),
        (("job", A100, "--engineer-hours", "3"), "requires --engineer-usd-hour"),
        (("job", *TUNE, "--commission", "0.2"), "--commission applies to candidates only"),
        (("job", *TUNE, "--min-billing", "1h"), "--min-billing applies to candidates only"),
        (("job", *TUNE, "--timeout", "9s"), "--timeout requires --poll"),
        (("job", *TUNE, "--interruptions-per-day", "3"), "--interruptions-per-day requires --spot"),
        (("job", *SEVENTY, "--on", "4x A100"), "--on requires --hours"),
        (("job", *SEVENTY, "--no-master"), "--master requires --method full"),
        (("job", *SEVENTY, "--prompt-tokens", "5M"), "--prompt-tokens requires --method inference"),
        (("size", "--params", "8B", "--rank", "8"), "--rank requires --method lora or qlora"),
        (
            ("size", "--params", "8B", "--method", "inference", "--optimizer", "lion"),
            "--optimizer applies to training only",
        ),
        (("size", "--params", "8B", "--seed", "--method", "lora"), "--method cannot be combined with --seed"),
        (("fit", "--seed", "--price", "H100=3"), "--price cannot be combined with --seed"),
        (("fit", "--price", "H100=3", "--provider", "vastai"), "--provider applies to offers"),
        (("fit", "--price", "H100=3", "--batch", "4"), "--batch requires a model"),
        (
            ("fit", "--price", "H100=3", "--task", "inference", "--vram", "9", "--any-link"),
            "--any-link applies to training only",
        ),
        (("use", "--price", "4", "--since", "9d"), "--since requires --launches"),
        (("buy", "--since", "9d"), "--since requires --launches"),
        (("buy", "--seed", "--cards", "4"), "--cards cannot be combined with --seed"),
    ],
)
def test_no_option_is_ignored_in_silence(shell: Shell, argv: tuple[str, ...], reported: str) -> None:
    ran = shell("plan", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert reported in ran.err


@pytest.mark.parametrize(
    "how", [("--method", "full"), ("--method", "lora"), ("--method", "inference"), ("--utilisation", "0.4")]
)
@pytest.mark.parametrize("card", ["1x H100 SXM @ 2.00", "1x A100 SXM 80GB @ 1.00", "1x V100 SXM2 32GB @ 0.50"])
def test_work_in_32_bits_takes_at_least_twice_as_long(shell: Shell, card: str, how: tuple[str, ...]) -> None:
    """Half the 16-bit rate with TF32, an eighth before Ampere; and twice the bytes per weight."""
    argv = (card, "--size-of", "1B", "--tokens", "1B", "--memory-gb", "0", *how)
    (half,) = costs(shell, *argv, "--precision", "fp16")
    (full,) = costs(shell, *argv, "--precision", "fp32")
    least = 4 if "V100" in card and "inference" not in how else 1.8  # the nearest measurements differ slightly
    assert full["hours"] >= least * half["hours"]
    assert full["hours_low"] >= least * half["hours_low"]


def test_kept_activations_cost_what_the_page_states() -> None:
    """34 bytes per token, width and layer instead of 2, and one full layer."""
    page = " ".join((ROOT / "docs" / "plan.md").read_text().split())
    assert "11 times as much for 32 layers and 14 times for 80" in page
    for layers, times in ((32, 11), (80, 14)):
        assert round(34 * layers / (2 * layers + 34)) == times
