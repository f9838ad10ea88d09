"""`gpuwatch forecasts backtest` on the public series, on a store, and on invalid files."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch.domain.forecasts.backtest.replay_result import parse_sweep
from tests.checkout import TESTS
from tests.cli.conftest import Shell

SERIES = TESTS / "recorded" / "price-history"
PRIME = str(SERIES / "primeintellect-best-2025-10-19_11-03.csv.gz")
VAST = str(SERIES / "vastai-offers-2026-02-27_03-03.csv.gz")
HEADER = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour\n"
WATCHES = """
[budget]
max_usd_day = 200
[[watch]]
name = "eights"
gpu = "H100"
gpu_count = 8
max_price = 1.85
action = "launch"
min_cuda = 12.4
nvlink = true
require = ["dry_epoch"]
launch = { max_runtime = "6h", max_total = 3 }
[[watch]]
name = "any"
gpu = ["H200", "B200"]
gpu_count = { min = 1, max = 8 }
max_price = 2.7
"""


def a_file(folder: Path, *rows: str) -> str:
    """Rows of one H100 SXM machine: "hour price"."""
    lines = []
    for row in rows:
        hour, machine, price = row.split()
        lines.append(f"2026-03-01T{int(hour):02}:00:00Z,gcp2,{machine}/1,US,H100 SXM,1,80,false,{price}\n")
    path = folder / "prices.csv"
    path.write_text(HEADER + "".join(lines))
    return str(path)


def test_a_rule_of_flags_on_a_file(shell: Shell, tmp_path: Path) -> None:
    rows = [f"{hour} a 3.0" for hour in range(4)] + [f"{hour} a 2.0" for hour in (4, 5)]
    rows += [f"{hour} b 1.0" for hour in range(6, 24)]
    data = a_file(tmp_path, *rows)
    ran = shell("backtest", "--gpu", "H100", "--max-price", "2", "--max-runtime", "2h", "--data", data, "--json")
    (watch,) = ran.json["watches"]
    assert (ran.code, ran.err) == (0, "")
    assert (watch["action"], watch["launches"], watch["looks"]) == ("launch", 1, 24)
    launch = watch["events"][0]
    assert (launch["did"], launch["at"], launch["waited_s"]) == ("launch", "2026-03-01T04:00:00Z", 4 * 3600)
    assert (launch["price_usd_gpu_hour"], launch["hours"], launch["cost_usd"]) == (2.0, 2.0, 4.0)
    assert launch["cheaper_later"] == {"at": "2026-03-01T06:00:00Z", "price_usd_gpu_hour": 1.0}
    assert (watch["at_once_usd_gpu_hour"], watch["median_usd_gpu_hour"]) == (3.0, 1.0)
    assert watch["saved_against_at_once"] == pytest.approx(1 / 3)
    assert watch["saved_against_median"] == -1.0
    assert ran.json["samples"] == 24
    assert ran.json["method"]


def test_watches_of_the_settings_with_budgets_and_what_the_history_cannot_judge(shell: Shell) -> None:
    shell.settings(WATCHES)
    found = shell("backtest", "--data", PRIME, "--json").json
    eights, any_ = found["watches"]
    assert found["not_judged"] == {"eights": ["min_cuda", "nvlink"]}
    assert eights["launches"] == 3, "max_total = 3"
    assert eights["fires"] >= 3
    assert all(event["gpu_count"] == 8 for event in eights["events"])
    assert any_["launches"] == 0
    text = shell("backtest", "eights", "--data", PRIME).out
    assert "the history cannot evaluate: min_cuda, nvlink" in text
    assert "assumed ticked: dry_epoch" in text
    assert "3 launches, $259.20 in all" in text


def test_a_budget_that_is_spent_refuses_and_is_counted(shell: Shell) -> None:
    shell.settings(WATCHES.replace("max_usd_day = 200", "max_usd_day = 100"))
    (eights,) = shell("backtest", "eights", "--data", PRIME, "--json").json["watches"]
    assert shell("backtest", "eights", "--data", PRIME).out.startswith(f"{eights['sentence']}\n")
    assert eights["sentence"].startswith("eights would have ")
    assert eights["budget_refusals"]["max_usd_day"] > 0
    assert "blocked by the budget: max_usd_day at" in shell("backtest", "eights", "--data", PRIME).out


def test_strict_refuses_what_cannot_be_judged(shell: Shell) -> None:
    shell.settings(WATCHES)
    ran = shell("backtest", "eights", "--data", PRIME, "--strict")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "watch 'eights': the history cannot evaluate min_cuda, nvlink (--strict)\n"
    assert shell("backtest", "any", "--data", PRIME, "--strict").code == 0


def test_the_store_says_what_the_file_says(shell: Shell) -> None:
    asked = ["backtest", "--gpu", "H100 SXM", "--max-price", "1.4", "--json"]
    shell.new_store()
    assert shell("import", VAST).code == 0
    of_store, of_file = shell(*asked, "--since", "all").json, shell(*asked, "--data", VAST).json
    assert of_store.pop("source") == "the store"
    assert of_file.pop("source") == Path(VAST).name
    assert of_store == of_file
    assert of_store["watches"][0]["fires"] == 5


def test_a_sweep_is_a_row_for_each_threshold_and_dearer_is_never_slower(shell: Shell) -> None:
    flags = ["--gpu", "H100", "--spot", "any", "--count", "1-8", "--data", PRIME, "--sweep", "max_price=0.9:2:0.1"]
    steps = shell("backtest", *flags, "--json").json["steps"]
    assert [step["max_price_usd_gpu_hour"] for step in steps] == pytest.approx([0.9 + n / 10 for n in range(12)])
    shares = [step["within_deadline"] for step in steps]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert steps[0]["median_wait_s"] is None
    assert steps[-1]["median_wait_s"] == 0.0
    rows = list(csv.reader(io.StringIO(shell("backtest", *flags, "--csv").out)))
    assert len(rows) == 13
    assert {len(row) for row in rows} == {len(rows[0])}
    assert "median wait in hours" not in shell("backtest", *flags).out, "there is none: it is 0 or not known"
    eights = ["--gpu", "H100", "--count", "8", "--data", PRIME, "--sweep", "max_price=1.75:1.95:0.05"]
    text = shell("backtest", *eights).out
    assert "median wait in hours, by max_price" in text
    assert "     1.80    7%      9  8d22h      46%      1d1h16m     1.8621    -2.4%" in text
    assert "nan" not in text


def test_a_step_of_a_sweep_is_the_watch_by_itself(shell: Shell) -> None:
    flags = ["--gpu", "H100", "--spot", "any", "--count", "1-8", "--data", PRIME, "--action", "launch", "--json"]
    steps = shell("backtest", *flags, "--sweep", "max_price=1:1.9:0.3").json["steps"]
    for step in steps:
        price = str(step["max_price_usd_gpu_hour"])
        (alone,) = shell("backtest", *flags, "--max-price", price).json["watches"]
        for key in ("fires", "launches", "held", "paid_usd_gpu_hour", "waited_s", "median_usd_gpu_hour"):
            assert step[key] == alone[key]


def test_pictures(shell: Shell, tmp_path: Path) -> None:
    one, swept = tmp_path / "one.png", tmp_path / "swept.png"
    flags = ["backtest", "--gpu", "H100", "--data", PRIME]
    assert shell(*flags, "--max-price", "1.9", "--png", str(one)).code == 0
    assert shell(*flags, "--sweep", "max_price=1.5:2:0.25", "--png", str(swept)).code == 0
    assert one.read_bytes()[:4] == swept.read_bytes()[:4] == b"\x89PNG"


def test_csv_of_events_is_neutral(shell: Shell, tmp_path: Path) -> None:
    data = a_file(tmp_path, "0 =cmd 1.0", "1 =cmd 1.0")
    ran = shell("backtest", "--gpu", "H100", "--max-price", "2", "--data", data, "--csv")
    (row,) = csv.DictReader(io.StringIO(ran.out))
    assert (row["offer_id"], row["did"]) == ("'=cmd/1", "alert")


def test_a_market_without_a_fitting_offer_and_one_that_nobody_looked_at(shell: Shell, tmp_path: Path) -> None:
    data = a_file(tmp_path, "0 a 3.0", "1 a 3.0")
    never = shell("backtest", "--gpu", "H100", "--max-price", "2", "--data", data)
    assert (never.code, "it never fired" in never.out) == (0, True)
    assert "the data is shorter than the deadline (1d)" in never.out
    two = shell("backtest", "--gpu", "H100", "--count", "2", "--max-price", "2", "--data", data)
    assert "no matching offer was on sale" in two.out
    nobody = shell("backtest", "--gpu", "B200", "--max-price", "2", "--data", data)
    assert (nobody.code, "no polls in that time" in nobody.out) == (3, True)
    assert shell("backtest", "--gpu", "B200", "--max-price", "2", "--data", data, "--json").json["since"] is None


def test_an_empty_store_cannot_tell(shell: Shell) -> None:
    shell.new_store()
    ran = shell("backtest", "--gpu", "H100", "--max-price", "2")
    assert (ran.code, "no polls in that time" in ran.out) == (3, True)
    assert json.loads(shell("backtest", "--gpu", "H100", "--sweep", "max_price=1:2:0.5", "--json").out)["samples"] == 0


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "there is no [[watch]]"),
        (["--gpu", "H100"], "--gpu and --max-price require each other,"),
        (["--max-price", "2"], "--max-price: only with --gpu"),
        (["--spot", "any"], "--spot: only with --gpu"),
        (["x", "--gpu", "H100", "--max-price", "2"], "use either"),
        (["--gpu", "H1000", "--max-price", "2"], "did you mean"),
        (["--gpu", "H100", "--max-price", "0"], "--max-price: expected a number above 0"),
        (["--gpu", "H100", "--max-price", "2", "--count", "x"], "--count: expected a number"),
        (["--gpu", "H100", "--max-price", "2", "--action", "alert", "--max-runtime", "2h"], "--action launch"),
        (["--gpu", "H100", "--sweep", "max_price=1:2"], "--sweep: expected max_price=FROM:TO:STEP"),
        (["--gpu", "H100", "--sweep", "hold_for=1:2:3"], "--sweep: expected max_price=FROM:TO:STEP"),
        (["--gpu", "H100", "--sweep", "max_price=1:2000:0.01"], "at most 200"),
        (["--gpu", "H100", "--max-price", "2", "--csv", "--json"], "use either"),
        (["--gpu", "H100", "--max-price", "2", "--since", "1d", "--until", "2d"], "before --until"),
        (["--gpu", "H100", "--max-price", "2", "--since", "yesterday"], "expected a duration"),
        (["--gpu", "H100", "--max-price", "2", "--data", "/nowhere.csv"], "does not exist"),
        (["--gpu", "H100", "--max-price", "2", "--deadline", "0s"], "above 0"),
    ],
)
def test_wrong_usage_is_one_line_and_code_two(shell: Shell, argv: list[str], words: str) -> None:
    ran = shell("backtest", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_a_sweep_over_several_watches_wants_one_named(shell: Shell) -> None:
    shell.settings(WATCHES)
    ran = shell("backtest", "--data", PRIME, "--sweep", "max_price=1:2:0.5")
    assert (ran.code, ran.err) == (2, "--sweep requires one watch: eights, any\n")
    assert shell("backtest", "nobody", "--data", PRIME).err == "there is no watch 'nobody'; watches: eights, any\n"


def test_a_sweep_holds_both_ends() -> None:
    assert parse_sweep("max_price=2.0:2.3:0.1") == tuple(map(Decimal, ("2.0", "2.1", "2.2", "2.3")))
    assert parse_sweep("max_price=2:2:1") == (Decimal(2),)


def test_a_watch_by_the_price_of_its_whole_job(shell: Shell) -> None:
    shell.settings(
        """
[[watch]]
name = "job"
gpu = ["A100", "H100"]
gpu_count = { min = 1, max = 8 }
max_job_cost = 40
job = { hours = 10, on = "4x A100" }
"""
    )
    (watch,) = shell("backtest", "--data", PRIME, "--json").json["watches"]
    assert watch["fires"] > 0
    assert all(event["gpu"].startswith("A100") for event in watch["events"]), "its hours are known on A100 alone"
    assert all(event["price_usd_gpu_hour"] * 40 <= 40 for event in watch["events"])
    assert "at most $40.00 for the job" in shell("backtest", "--data", PRIME).out


def test_a_watch_with_an_automatic_price_has_the_limits_of_those_days(shell: Shell) -> None:
    shell.settings(
        """
[[watch]]
name = "auto"
gpu = "H100"
gpu_count = 8
max_price = "auto"
max_price_cap = 2.5
deadline = "2d"
"""
    )
    ran = shell("backtest", "--data", PRIME, "--json")
    (watch,) = ran.json["watches"]
    assert (ran.code, watch["max_price_usd_gpu_hour"]) == (0, 2.5)
    assert watch["events"][0]["at"] == "2025-10-19T21:06:43Z", "without history the cap counts"
    assert all(event["price_usd_gpu_hour"] <= 2.5 for event in watch["events"])
    assert "at or under $2.50/GPU-h (auto), alert" in shell("backtest", "--data", PRIME).out
