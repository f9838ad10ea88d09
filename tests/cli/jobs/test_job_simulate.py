"""`gpuwatch jobs simulate`: a queue on public prices, with sample sizes and assumptions."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpuwatch.cli import Exit
from tests.checkout import TESTS
from tests.cli.conftest import Shell

VAST = TESTS / "recorded" / "price-history" / "vastai-offers-2026-02-27_03-03.csv.gz"
JOB = 'command = "true"\nresources = { gpu = "H100" }\nlimit = { max_price = 5 }\nhours = 4\ndeadline = "2d"\n'


@pytest.fixture(autouse=True)
def _settings(shell: Shell) -> None:
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    (shell.folder / "train.toml").write_text(JOB)


def test_a_made_up_queue_of_a_thousand_says_what_it_rests_on(shell: Shell, h100_prices: Path) -> None:
    argv = ("job", "simulate", "--jobs", "1000", "--data", str(h100_prices), "--json")
    ran = shell(*argv)
    assert ran.code == Exit.DONE, ran.err
    found = ran.json
    assert found["jobs"] == 1000
    assert 0 < found["compared"] <= 1000 - found["left_out"]
    policies = {one["policy"]: one for one in found["policies"]}
    assert policies.keys() == {"queue", "cheapest_now", "list_price"}
    assert policies["queue"]["over_limit"] == 0
    assert policies["queue"]["saved"] is None
    for other in ("cheapest_now", "list_price"):
        saved = 1 - policies["queue"]["usd"] / policies[other]["usd"]
        assert policies[other]["saved"] == pytest.approx(saved)
        assert policies[other]["saved_low"] <= saved <= policies[other]["saved_high"]
    assert len(found["assumed"]) >= 4


def test_the_same_queue_is_made_up_again(shell: Shell, h100_prices: Path) -> None:
    argv = ("job", "simulate", "--jobs", "100", "--data", str(h100_prices), "--json")
    assert shell(*argv).json == shell(*argv).json


def test_a_job_file_is_submitted_once_a_day(shell: Shell, h100_prices: Path) -> None:
    ran = shell("job", "simulate", "train.toml", "--data", str(h100_prices))
    assert ran.code == Exit.DONE, ran.err
    assert ran.out.startswith("16 jobs, unlimited in parallel, 2025-10-19")
    assert "compared: " in ran.out
    assert "assumed: whatever was on offer could have been rented" in ran.err


def test_a_recurring_job_is_replayed_at_its_times_and_one_run_at_a_time(shell: Shell, h100_prices: Path) -> None:
    """Every six hours for fifteen days; a run of ten hours skips the next time, and its own file says the rest."""
    text = JOB.replace('deadline = "2d"', 'schedule = "0 */6 * * *"\nwithin = "12h"')
    (shell.folder / "often.toml").write_text(text)
    (shell.folder / "long.toml").write_text(text.replace("hours = 4", "hours = 10"))
    argv = ("jobs", "simulate", "--data", str(h100_prices), "--json")
    often, long = (shell(*argv, f"{name}.toml").json for name in ("often", "long"))
    assert 50 < often["jobs"] == long["jobs"] < 64, "not one a day"
    at_once = {one["policy"]: one["skipped"] for one in long["policies"]}["cheapest_now"]
    assert at_once == pytest.approx(long["jobs"] / 2, abs=4)
    assert {one["policy"]: one["skipped"] for one in often["policies"]}["cheapest_now"] == 0
    assert often["missed"] == 0
    shown = shell(*argv[:-1], "long.toml")
    assert "skipped" in shown.out


def test_a_recurring_job_of_the_queue_is_replayed_without_its_open_run_twice(shell: Shell, h100_prices: Path) -> None:
    shell.new_store()
    (shell.folder / "daily.toml").write_text(JOB.replace('deadline = "2d"', 'schedule = "@daily"\nwithin = "12h"'))
    shell("jobs", "submit", "daily.toml")
    ran = shell("jobs", "simulate", "--data", str(h100_prices), "--since", "2025-10-01", "--json")
    assert ran.code == Exit.DONE, ran.err
    assert 14 <= ran.json["jobs"] <= 16


def test_moves_of_a_job_are_replayed(shell: Shell, h100_prices: Path) -> None:
    """Every price halves on 10-27 at noon: jobs of 48 hours that run then move once, if their file says so."""
    cheaper = shell.folder / "cheaper.csv.gz"
    with gzip.open(h100_prices, "rt") as rows, gzip.open(cheaper, "wt") as halved:
        for row in rows:
            head, _, price = row.strip().rpartition(",")
            is_later = row[:13] >= "2025-10-27T12" and price[:1].isdigit()
            halved.write(f"{head},{float(price) / 2:.4f}\n" if is_later else row)
    text = JOB.replace('deadline = "2d"', 'checkpoint = { path = "ckpt" }\n').replace("hours = 4", "hours = 48")
    found = {}
    for relocate in ("move", "alert"):
        (shell.folder / "train.toml").write_text(f'{text}relocate = "{relocate}"\n')
        ran = shell("jobs", "simulate", "train.toml", "--data", str(cheaper), "--json").json
        found[relocate] = {one["policy"]: one for one in ran["policies"]}
    assert {name: one["moves"] for name, one in found["move"].items()} == {
        "queue": 2,
        "cheapest_now": 0,
        "list_price": 0,
    }
    queue, stays = (found[one]["queue"] for one in ("move", "alert"))
    assert (stays["moves"], stays["moves_saved_usd"]) == (0, 0.0)
    assert queue["moves_saved_usd"] == pytest.approx(stays["usd"] - queue["usd"])
    assert queue["moves_saved_usd"] > 20


def test_an_open_job_is_replayed_on_the_store_and_without_prices_it_cannot_tell(shell: Shell) -> None:
    assert shell("job", "simulate").code == Exit.CANNOT_TELL
    shell.new_store()
    ran = shell("job", "simulate", "--since", "30d")
    assert (ran.code, "no job is open; name job files, or use --jobs 1000" in ran.err) == (Exit.USAGE, True)
    shell("job", "submit", "train.toml")
    assert shell("job", "simulate", "--since", "30d").code == Exit.CANNOT_TELL
    assert shell("job", "simulate", "--jobs", "10").code == Exit.CANNOT_TELL


def test_slots_are_competed_for(shell: Shell) -> None:
    argv = ("job", "simulate", "--jobs", "200", "--data", str(VAST), "--json")
    free, tight = shell(*argv).json, shell(*argv, "--slots", "2").json
    late = [one["policies"][0]["late"] for one in (free, tight)]
    assert late[1] >= late[0]


def test_the_list_price_is_the_median_of_the_offers_that_the_job_accepts(shell: Shell) -> None:
    (shell.folder / "german.toml").write_text(JOB.replace('"H100" }', '"H100", regions = ["DE"] }'))
    rows = ["observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"]
    for hour in range(72):
        at = f"2026-03-{hour // 24 + 1:02}T{hour % 24:02}:00:00Z"
        rows += [f"{at},runpod,a,DE,H100 SXM,1,80,false,3", f"{at},runpod,b,US,H100 SXM,1,80,false,1"]
    (shell.folder / "prices.csv").write_text("\n".join(rows) + "\n")
    found = shell("job", "simulate", "german.toml", "--data", str(shell.folder / "prices.csv"), "--json").json
    assert found["compared"] > 0
    assert {one["usd_gpu_hour"] for one in found["policies"]} == {3.0}
