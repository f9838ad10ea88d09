"""How the real daemon polls with many queries, and when a marketplace limits the rate."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from gpuwatch.emulator.request import LoggedRequest
from tests.process.daemon_child import Home, terminate, wait_for

pytestmark = pytest.mark.slow
GPUS = ("H100 SXM", "A100 SXM 80GB", "RTX 4090", "L40S", "RTX 3090")
SETTINGS = """
database_url = "sqlite:///{folder}/gpuwatch.db"

[providers.vastai]
base_url = "{url}"
api_key = "demo-key"
poll_every = "1s"
search_interval = "0.1s"
sweep_every = "{sweep_every}"
rows_per_day = 0
"""
WATCH = '\n[[watch]]\nname = "{gpu} x{count}"\ngpu = ["{gpu}"]\ngpu_count = {count}\nmax_price = 0.01\n'


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=40) as opened:
        yield opened


def a_home(folder: Path, market: Marketplace, sweep_every: str = "1h") -> Home:
    """Thirty queries at a spacing of 0.1 s take longer than `poll_every`: a hunt always waits for a turn."""
    home = Home(folder, market.url, has_store=False)
    watches = "".join(WATCH.format(gpu=gpu, count=count) for gpu in GPUS for count in range(1, 7))
    (folder / "gpuwatch.toml").write_text(
        SETTINGS.format(folder=folder, url=market.url, sweep_every=sweep_every) + watches
    )
    return home


def searches(market: Marketplace) -> list[LoggedRequest]:
    return [request for request in market.requests if request.path == "/api/v0/bundles/"]


def is_sweep(request: LoggedRequest) -> bool:
    """A hunt queries with its limit; a sweep queries all offers of a GPU."""
    return "dph_total" not in request.sent["q"]


def test_many_watches_do_not_starve_the_history(market: Marketplace, tmp_path: Path) -> None:
    home = a_home(tmp_path, market, "1s")
    assert "vastai: poll_every = 1 s is too short" in home.run("providers").stderr
    with home.daemon() as child:
        wait_for(lambda: len(searches(market)) >= 30)
        assert terminate(child)[0] == 0
    lanes = [is_sweep(request) for request in searches(market)[:30]]
    assert sum(lanes) >= 4, "a fifth; some turns may pass while a sweep's answer is being stored"
    assert not all(lanes)
    assert "vastai: poll_every = 1 s is too short" in home.log()
    polling = json.loads(home.run("providers", "--json").stdout)[0]["polling"]
    made = polling["searches_last_hour"]
    assert made["sweep"] >= sum(lanes)
    assert 25 <= made["hunt"] + made["sweep"] <= len(searches(market))
    assert polling["queries"] == 30
    assert polling["queries"] == 30
    assert 1.0 <= polling["round_s"] <= 3.8
    assert {one["seen_within_s"] for one in polling["watches"]} <= {one["every_s"] for one in polling["questions"]}
    assert sorted(name for one in polling["questions"] for name in one["watches"]) == sorted(
        one["watch"] for one in polling["watches"]
    )


def test_a_refusal_with_a_number_holds_the_searches_of_all_watches(market: Marketplace, tmp_path: Path) -> None:
    market.faults.add("search", "429", times=1, skip=6, shape="headers", threshold_s=4)
    with a_home(tmp_path, market).daemon() as child:
        wait_for(lambda: len(searches(market)) >= 14)
        assert terminate(child)[0] == 0
    refused, *later = (request.time for request in searches(market)[6:])
    too_early = [at for at in later if at < refused + 3.9]
    assert len(too_early) <= 1, "one may have been on its way when the refusal came"


def test_a_spent_quota_is_left_alone_also_after_a_restart(market: Marketplace, tmp_path: Path) -> None:
    market.faults.add("search", "quota", times=None, skip=3)
    home = a_home(tmp_path, market)
    for _ in range(2):
        with home.daemon() as child:
            wait_for(lambda: len(searches(market)) >= 4)
            time.sleep(3.0)  # three rounds of the hunt
            assert terminate(child)[0] == 0
        assert len(searches(market)) <= 5, "three answers, a refusal, and one that was on its way"
    asked = len(searches(market))
    checked = home.run("check", "--json")
    assert checked.returncode == 3
    assert "quota exceeded; no requests before" in json.loads(checked.stdout)["providers"][0]["error"]
    assert len(searches(market)) == asked
    assert "HELD    no search before" in home.run("providers").stdout


def test_watches_share_questions_once_their_gpus_were_read_and_a_bargain_reaches_its_own_watch(
    market: Marketplace, tmp_path: Path
) -> None:
    home = a_home(tmp_path, market, "1s")
    with home.daemon() as child:
        wait_for(lambda: any(is_joined(request) for request in searches(market)))
        market.publish(gpu="L40S", count=2, usd_hour=0.012)
        wait_for(lambda: matches(home) == ["L40S x2"])
        assert terminate(child)[0] == 0
    shown = home.run("providers").stdout
    assert "  polls   every 1 s: " in shown
    polling = json.loads(home.run("providers", "--json").stdout)[0]["polling"]
    assert len(polling["questions"]) < polling["queries"] == 30


def is_joined(request: LoggedRequest) -> bool:
    """Each watch queries one number of GPUs; a sweep queries all."""
    return {"gte", "lte"} & {*request.sent["q"].get("num_gpus", {})} != set()


def matches(home: Home) -> list[str]:
    events = json.loads(home.run("alerts", "--json").stdout)
    return [event["subject"] for event in events if event["kind"] == "match"]
