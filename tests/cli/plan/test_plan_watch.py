"""`gpuwatch plan job --watch`: from a question to a watch that loads, checks and replays."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest

from gpuwatch.emulator import Marketplace
from tests.checkout import TESTS
from tests.cli.conftest import Shell

PRICES = TESTS / "recorded" / "price-history" / "vastai-offers-2026-02-27_03-03.csv.gz"
JOB = ("plan", "job", "--method", "qlora", "--tokens", "100M", "--under", "100", "--by", "48h", "--poll")
SETTINGS = 'database_url = "sqlite:///prices.db"\n\n# my key is in the environment\n[providers.vastai]\n'


@pytest.fixture(scope="module")
def market() -> Iterator[Marketplace]:
    """Enough machines that each common GPU is on offer."""
    with Marketplace(seed=1, key="demo-key", size=600, odd_rows=False) as opened:
        yield opened


@pytest.fixture
def asking(shell: Shell, market: Marketplace) -> Shell:
    """A folder with a settings file without watches."""
    shell.settings(f'{SETTINGS}base_url = "{market.url}"\napi_key = "demo-key"\nsearch_interval = "0.02s"\n')
    return shell


def test_from_the_question_to_a_watch_in_two_commands(asking: Shell) -> None:
    """QLoRA of an 8B model, 100M tokens, under 100 $, this weekend."""
    before = (asking.folder / "gpuwatch.toml").read_text()
    asked = asking(*JOB, "--model", "8B", "--watch", "weekend", "--write")
    assert asked.code == 0, asked.err
    assert "feasible for $100.00 within 48 h: it costs" in asked.err
    written = (asking.folder / "gpuwatch.toml").read_text()
    assert written.startswith(before)
    (watch,) = tomllib.loads(written)["watch"]
    assert (watch["name"], watch["max_job_cost"], watch["disk_gb"]) == ("weekend", 100, 40)
    assert watch["job"]["within"] == watch["launch"]["max_runtime"] == "48h"
    assert {text.partition(" ")[2] for text in watch["job"]["tokens_per_s"]} == set(watch["gpu"])

    checked = asking("check", "weekend", "--json")
    assert checked.code == 0, checked.err
    assert 'watch "weekend"' not in checked.err
    offers = checked.json["watches"][0]["offers"]
    assert offers
    assert all(offer["job_cost_usd"] <= 100 for offer in offers)
    assert asking("backtest", "weekend", "--data", str(PRICES)).code == 0


def test_a_watch_counts_the_same_cost_as_the_plan_that_it_comes_from(asking: Shell) -> None:
    planned = asking(*JOB, "--model", "8B", "--json", "--set", "limit=500").json["offers"]
    asking(*JOB, "--model", "8B", "--watch", "weekend", "--write")
    found = asking("check", "weekend", "--json").json["watches"][0]["offers"]
    cost = {one["offer_id"]: one["job_cost_usd"] for one in planned}
    both = [(one["job_cost_usd"], cost[one["offer_id"]]) for one in found if one["offer_id"] in cost]
    assert both
    # a watch takes the slowest offer of a GPU and number for all of them
    assert [(mine, theirs) for mine, theirs in both if mine < theirs * 0.98] == []


def test_a_job_that_is_not_feasible_gets_no_watch_but_the_figure_that_makes_it_so(asking: Shell) -> None:
    ran = asking(*JOB, "--model", "70B", "--gpu", "H100 SXM", "--set", "count=2", "--watch", "weekend")
    assert (ran.code, ran.out) == (1, "")
    assert "not feasible for $100.00 within 48 h: it costs" in ran.err
    assert "it takes 55.6–79.4 h" in ran.err or "it takes 56" in ran.err
    assert "no watch: the job is not feasible" in ran.err


def test_without_write_the_watch_is_all_of_the_standard_output(asking: Shell) -> None:
    before = (asking.folder / "gpuwatch.toml").read_text()
    ran = asking(*JOB, "--model", "gpt-oss-20b", "--watch", 'a "b"')
    assert ran.code == 0, ran.err
    (watch,) = tomllib.loads(ran.out)["watch"]
    assert watch["name"] == 'a "b"'
    assert watch["job"]["model"] == "gpt-oss-20b"
    assert (asking.folder / "gpuwatch.toml").read_text() == before
    (asking.folder / "gpuwatch.toml").write_text(before + "\n" + ran.out)
    assert asking("config", "show", "--json").code == 0


def test_a_name_that_is_taken_is_refused_and_the_file_stays(asking: Shell) -> None:
    asking(*JOB, "--model", "8B", "--watch", "weekend", "--write")
    before = (asking.folder / "gpuwatch.toml").read_text()
    ran = asking(*JOB, "--model", "8B", "--watch", "weekend", "--write")
    assert ran.code == 2
    assert "has a watch of that name" in ran.err
    assert (asking.folder / "gpuwatch.toml").read_text() == before


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (("--write",), "--write requires --watch NAME"),
        (("--watch", "w", "--json"), "use either --watch, which prints TOML, or --json"),
        (("--watch", "w", "4x A100 @ 1.20 for 72h"), "--watch requires real offers: omit the candidates"),
    ],
)
def test_options_that_contradict_each_other_are_refused(asking: Shell, more: tuple[str, ...], fault: str) -> None:
    ran = asking("plan", "job", *more)
    assert (ran.code, ran.err.strip()) == (2, fault)


def test_the_limits_follow_the_cheapest_offer_and_not_the_dearest(asking: Shell) -> None:
    """Without a maximum cost, `max_job_cost` and the month's budget were those of the most expensive feasible offer."""
    job = [part for part in JOB if part not in {"--under", "100", "--by", "48h"}]
    cheapest = asking(*job, "--model", "8B", "--json", "--set", "limit=1").json["offers"][0]["job_cost_usd"]
    ran = asking(*job, "--model", "8B", "--watch", "w", "--write")
    (watch,) = tomllib.loads((asking.folder / "gpuwatch.toml").read_text())["watch"]
    assert cheapest <= watch["max_job_cost"] <= 2 * cheapest
    assert cheapest <= watch["budget"]["max_usd_month"] <= 2 * cheapest
    assert f"where the job costs ${cheapest:,.2f} in the worst case" in ran.err
    found = asking("check", "w", "--json").json["watches"][0]["offers"]
    assert found[0]["job_cost_usd"] == pytest.approx(cheapest, rel=0.02)
