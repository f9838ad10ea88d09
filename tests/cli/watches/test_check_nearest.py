"""`gpuwatch check` without a match names the nearest offer: what only the price limit rejects, and how near it is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.app.watches.check import check_markets
from gpuwatch.bootstrap import real_now
from gpuwatch.emulator import Marketplace
from gpuwatch.settings import load
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from tests.cli.conftest import Shell
from tests.storage.stored_answers import an_answer, an_offer

H100 = ("check", "--gpu", "H100", "--max-price")


@pytest.fixture(autouse=True)
def store(shell: Shell) -> Path:
    return shell.new_store()


def test_without_a_match_the_cheapest_that_only_its_price_excludes_is_named(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.36)
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.10, reliability2=0.5)
    market.publish(gpu="RTX 4090", count=1, usd_hour=0.10)
    shell.settings('[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 3.6\nmin_reliability = 0.9\n')
    ran = shell("check")
    assert ran.code == 1
    assert "  nearest: H100 SXM, $4.032/GPU-h at vast.ai, 12 % above your limit\n" in ran.out
    assert len(market.requests) == 1
    shell.new_store()
    (watch,) = shell("check", "--json").json["watches"]
    near = watch["nearest"]
    assert (watch["matched"], near["price_usd_gpu_hour"], near["above_limit"]) == (False, 4.032, 0.12)
    assert (near["provider"], near["gpu"], near["times_under_7d"]) == ("vastai", "H100 SXM", None)
    assert near["sentence"] == "nearest: H100 SXM, $4.032/GPU-h at vast.ai, 12 % above your limit"


def test_a_match_needs_no_nearest(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.00)
    ran = shell(*H100, "3.60")
    assert ran.code == 0
    assert "nearest" not in ran.out
    assert shell(*H100, "3.60", "--json").json["watches"][0]["nearest"] is None


def test_a_hair_above_the_limit_is_not_zero_percent(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=2, usd_hour=6.001)
    assert (
        "nearest: 2× H100 SXM, $3.6006/GPU-h at vast.ai, less than 1 % above" in shell(*H100, "3.6", "--count", "2").out
    )


def test_a_script_that_checks_often_uses_no_rows_above_its_limit(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.36)
    answers = [shell(*H100, "3.60", "--json").json for _ in range(3)]
    assert [answer["providers"][0]["offers"] for answer in answers] == [1, 0, 0]
    assert [answer["watches"][0]["nearest"] is None for answer in answers] == [False, True, True]


def test_a_person_always_sees_the_nearest_and_no_search_is_added(shell: Shell, market: Marketplace) -> None:
    for number in range(90):  # more than a page
        market.publish(gpu="H100 SXM", count=1, usd_hour=3.01 + number / 100)
    shell(*H100, "3.60")
    shell.settings('[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 3.6\n')
    settings = load(cwd=shell.folder)
    checked = check_markets(settings, settings.watches, (), for_person=True)
    assert checked.is_complete
    assert checked.providers[0].nearest["w"].price.price_microusd_hour == 3_612_000
    assert len(market.requests) == 2


def test_a_page_of_matches_is_searched_once_however_wide(shell: Shell, market: Marketplace) -> None:
    for number in range(90):
        market.publish(gpu="H100 SXM", count=1, usd_hour=1.00 + number / 100)
    assert shell(*H100, "3.60").code == 0
    assert len(market.requests) == 1


def test_how_often_it_was_under_the_limit_comes_from_the_recorded_history(
    shell: Shell, market: Marketplace, store: Path
) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.36)
    database, now = open_database(f"sqlite:///{store}"), real_now()
    for hours_ago in range(72, 0, -1):
        price = 2.90 if hours_ago in {60, 59, 40, 12} else 3.40
        offer = an_offer("m1", price, offer_id="1")
        answer = an_answer(offer, observed_at=now - timedelta(hours=hours_ago))
        SqlHistoryRecorder(database).record(answer, lane="sweep", gpu="H100 SXM", spot=False)
    database.close()
    (watch,) = shell(*H100, "3.60", "--json").json["watches"]
    assert watch["nearest"]["times_under_7d"] == 3
    assert watch["nearest"]["sentence"] == (
        "nearest: H100 SXM, $4.032/GPU-h at vast.ai, 12 % above your limit; under it 3 times in the last 7 days"
    )
