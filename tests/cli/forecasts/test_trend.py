"""`gpuwatch forecasts trend`: public series, own history, and too little of either."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Shell

COLUMNS = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"


def test_public_series_need_no_store(shell: Shell) -> None:
    ran = shell("forecasts", "trend", "H100")
    assert ran.code == 0
    assert ran.out.startswith("The on-demand price of H100 fell 7.6 % a year, which may be chance (95 % interval")
    assert "-44.0 %" in ran.out
    assert "; 13 quarters of 3 series, 2023Q3 to 2026Q1)" in ran.out
    assert "mostly list prices of clouds" in ran.err
    (found,) = shell("forecasts", "trend", "H100", "--json").json["trends"]
    assert found["percent_a_year_low"] < found["percent_a_year"] < 0 < found["percent_a_year_high"]
    assert (found["quarters"], found["since"], found["until"]) == (13, "2023Q3", "2026Q1")


def test_all_gpus_and_spot(shell: Shell) -> None:
    assert shell("forecasts", "trend").out.startswith("Of 13 GPUs, 0 became cheaper over the years by more than chance")
    found = shell("forecasts", "trend", "--spot", "--json").json["trends"]
    assert {one["spot"] for one in found} == {True}
    assert "A100 SXM 40GB" in {one["gpu"] for one in found}


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [(["B200"], 3, "Too few prices of B200 SXM: a trend needs 4 quarters"), (["--own"], 3, "Too few prices")],
)
def test_too_few_quarters_are_said_so(shell: Shell, argv: list[str], code: int, said: str) -> None:
    ran = shell("forecasts", "trend", *argv)
    assert (ran.code, said in ran.out) == (code, True)


def test_the_own_history_counts_with_its_commission(shell: Shell) -> None:
    """A price a week for five quarters, a tenth less in each; 20 % commission change the level, not the trend."""
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    shell.new_store()
    path, first = shell.folder / "prices.csv", datetime(2025, 1, 1, tzinfo=UTC)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS.split(","))
        for week in range(65):
            at = first + timedelta(weeks=week)
            quarter = (at.year - 2025) * 4 + (at.month - 1) // 3
            usd = f"{2 * 0.9**quarter:.6f}"
            out.writerow((f"{at:%Y-%m-%dT%H:%M:%SZ}", "vastai", "1/ondemand", "", "RTX 3090", 1, 24, "false", usd))
    assert shell("import", str(path)).code == 0
    assert "list prices" not in shell("forecasts", "trend", "RTX 3090", "--own").err
    (found,) = shell("forecasts", "trend", "RTX 3090", "--own", "--json").json["trends"]
    assert found["percent_a_year"] == pytest.approx(100 * (0.9**4 - 1), abs=0.1)
    assert found["prices"][0] == {
        "source": "your vastai", "gpu": "RTX 3090", "quarter": "2025Q1", "price_usd_gpu_hour": pytest.approx(2.4),
    }  # fmt: skip
