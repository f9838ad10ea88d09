"""`gpuwatch plan fit --watch` and `plan size --watch`: a watch that loads, fires and replays; and their pages."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from tests.checkout import TESTS
from tests.cli.conftest import Shell
from tests.cli.test_html_pages import written

PRICES = str(TESTS / "recorded/price-history/vastai-offers-2026-02-27_03-03.csv.gz")
FIT = ("plan", "fit", "--size-of", "70B", "--method", "qlora")
SIZE = ("plan", "size", "--model", "8B", "--method", "qlora", "--max-price", "0.5", "--gpu", "L40S", "--gpu", "4090")


@pytest.fixture
def asking(shell: Shell, market: Marketplace) -> Shell:
    market.publish(gpu="H100 SXM", count=1, usd_hour=1.50, reliability=0.99, disk_space=500)
    shell.settings(
        f'database_url = "sqlite:///prices.db"\n[providers.vastai]\nbase_url = "{market.url}"\napi_key = "demo-key"\n'
    )
    return shell


def test_the_best_class_becomes_a_watch_that_fires_on_the_offer_at_hand(asking: Shell) -> None:
    ran = asking(*FIT, "--gpu", "H100", "--poll", "--watch", "seventy", "--write")
    assert ran.code == 0, ran.err
    (watch,) = tomllib.loads((asking.folder / "gpuwatch.toml").read_text())["watch"]
    assert (watch["name"], watch["gpu"], watch["gpu_count"]) == ("seventy", "H100 SXM", 1)
    assert (watch["max_price"], watch["disk_gb"], watch["min_reliability"]) == (1.8, 170, 0.95)
    checked = asking("check", "seventy", "--json")
    assert (checked.code, checked.json["matched"]) == (0, True), checked.err
    replayed = asking("backtest", "seventy", "--data", PRICES)
    assert replayed.code == 0, replayed.err
    assert "seventy: H100 SXM at or under $1.80/GPU-h" in replayed.out


def test_a_class_on_recorded_prices_is_replayed_at_once(shell: Shell) -> None:
    shell.settings("[providers.vastai]\n")
    ran = shell(*FIT, "--data", PRICES, "--watch", "w", "--write")
    assert ran.code == 0, ran.err
    assert "it fired once" in shell("backtest", "w", "--data", PRICES).out


def test_cards_that_hold_a_model_become_a_watch_at_a_price_that_is_named(shell: Shell) -> None:
    shell.settings("[providers.vastai]\n")
    ran = shell(*SIZE, "--watch", "small", "--write")
    assert ran.code == 0, ran.err
    (watch,) = tomllib.loads((shell.folder / "gpuwatch.toml").read_text())["watch"]
    assert {"RTX 4090", "L40S"} <= set(watch["gpu"])
    assert (watch["gpu_count"], watch["max_price"], watch["min_vram_gib"]) == (1, 0.5, 23)
    assert shell("backtest", "small", "--data", PRICES).code == 0
    printed = shell(*SIZE, "--watch", "other")
    assert tomllib.loads(printed.out)["watch"][0]["name"] == "other"


def test_a_provider_that_never_rates_its_machines_is_not_asked_for_a_reliability(shell: Shell, tmp_path: Path) -> None:
    """Lambda states none: a minimum would reject all its offers, and the watch would never fire."""
    data = tmp_path / "lambda.csv"
    columns = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"
    rows = [f"2026-03-01T0{hour}:00:00Z,lambda,a/ondemand,us-east-1,H100 SXM,1,80,false,2.99" for hour in range(3)]
    data.write_text("\n".join([columns, *rows]) + "\n")
    job = ("plan", "job", "--model", "8B", "--method", "qlora", "--tokens", "100M", "--set", f"data={data}")
    for argv in (job, (*FIT, "--data", str(data))):
        (watch,) = tomllib.loads(shell(*argv, "--watch", "w").out)["watch"]
        assert "min_reliability" not in watch
        assert watch["any"] == ["reliability >= 0.95", 'provider not in ("vastai")']


@pytest.mark.parametrize(
    ("argv", "fault"),
    [
        ((*FIT, "--write"), "--write requires --watch NAME"),
        ((*FIT, "--watch", "w", "--json"), "use either --watch, which prints TOML, or --json"),
        ((*FIT, "--watch", "w", "--html", "p.html"), "use either --html, or --json and --csv"),
        (
            ("plan", "size", "--model", "8B", "--watch", "w"),
            "--watch requires --max-price USD per GPU-hour; plan fit --watch uses the market price",
        ),
        (("plan", "size", "--model", "8B", "--max-price", "2"), "--max-price requires --watch NAME"),
    ],
)
def test_options_that_contradict_each_other_are_refused(shell: Shell, argv: tuple[str, ...], fault: str) -> None:
    ran = shell(*argv)
    assert (ran.code, ran.err.strip()) == (2, fault)


@pytest.mark.parametrize(
    ("argv", "verdict", "also"),
    [
        ((*FIT, "--data", PRICES), "cheapest per hour", "226 prices of"),
        (("plan", "size", "--model", "8B", "--method", "qlora", "-v"), "GB in total; fewest cards: 1×", "Korthikanti"),
    ],
    ids=["fit", "size"],
)
def test_a_page_has_verdict_chart_and_all_that_was_printed(
    shell: Shell, argv: tuple[str, ...], verdict: str, also: str
) -> None:
    ran = shell(*argv, "--html", "page.html")
    assert ran.code == 0, ran.err
    page = written(shell.folder / "page.html")
    assert {"svg", "table"} <= set(page.tags)
    text = "\n".join(page.texts)
    assert verdict in text
    assert also in text


def test_the_price_of_a_class_includes_the_disk_of_its_watch(shell: Shell, market: Marketplace) -> None:
    """170 GB at 0.20 $ a month: without them the limit would be below the price of the offer that the plan shows."""
    market.publish(gpu="H100 SXM", count=1, usd_hour=1.50, reliability=0.99, disk_space=500, storage_cost=0.20)
    market.publish(gpu="H100 SXM", count=1, usd_hour=1.40, reliability=0.99, disk_space=60)
    shell.settings(
        f'database_url = "sqlite:///prices.db"\n[providers.vastai]\nbase_url = "{market.url}"\napi_key = "demo-key"\n'
    )
    argv = (*FIT, "--gpu", "H100", "--poll", "--any-price")
    shown = shell(*argv, "--json").json["choices"][0]
    ran = shell(*argv, "--watch", "seventy", "--write")
    assert ran.code == 0, ran.err
    (watch,) = tomllib.loads((shell.folder / "gpuwatch.toml").read_text())["watch"]
    assert watch["max_price"] == pytest.approx(shown["price_usd_gpu_hour"], abs=0.0002)
    found = shell("check", "seventy", "--json").json["watches"][0]["offers"]
    assert [one["price_usd_gpu_hour"] for one in found] == [pytest.approx(watch["max_price"], abs=0.0002)]
