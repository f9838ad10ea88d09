"""What could not be seen is said: plans that are not understood, and cards that a provider cannot list."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuwatch.emulator.server import Marketplace
from gpuwatch.engine.market.browse import Coverage, empty_text
from tests.cli.conftest import Shell
from tests.clouds.azure import AzurePrices
from tests.clouds.vultr import Vultr


@pytest.fixture
def vultr(shell: Shell) -> Iterator[Vultr]:
    with Vultr() as place:
        shell.settings(
            f'[providers.vastai]\nenabled = false\n[providers.vultr]\nbase_url = "{place.url}/v2"\napi_key = "k"\n'
            '[[watch]]\nname = "a40"\ngpu = "A40"\nmax_price = 3\nproviders = ["vultr"]\n'
            '[[watch]]\nname = "b200"\ngpu = "B200"\nmax_price = 9\nproviders = ["vultr"]\n'
        )
        yield place


def test_whole_gpus_of_dedicated_plans_match_and_an_unknown_plan_is_counted_and_named(
    shell: Shell, vultr: Vultr
) -> None:
    ran = shell("check", "--json")
    found = {watch["name"]: watch["offers"] for watch in ran.json["watches"]}
    assert [(offer["gpu"], offer["gpu_count"], offer["region"]) for offer in found["a40"]] == []  # 4 cards, not 1
    offers = shell("offers", "--gpu", "A40", "--count", "4", "--json").json
    assert [(offer["gpu_count"], offer["region"], offer["price_usd_hour"]) for offer in offers] == [(4, "blr", 6.848)]
    assert "every provider answered" not in shell("check", "b200").out
    assert "no offers (1 row of vultr not understood)" in shell("check", "b200").out

    listed = shell("providers").out
    assert "1 plan not understood: 1 × a dedicated plan of an unknown configuration: vcg-b200-999c-1g-1vram" in listed
    [status] = [one for one in shell("providers", "--json").json if one["provider"] == "vultr"]
    reason = "a dedicated plan of an unknown configuration: vcg-b200-999c-1g-1vram"
    assert (status["last_poll_skipped"], status["not_understood"]) == (1, {reason: 1})


def test_a_card_that_vast_has_no_name_for_is_said(shell: Shell, market: Marketplace) -> None:
    """vast.ai calls every V100 "Tesla V100": a watch on one socket can never match there."""
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    ran = shell("check", "--gpu", "V100 SXM2 32GB", "--max-price", "3")
    assert ran.code == 1
    assert "no offers (vastai cannot list V100 SXM2 32GB)" in ran.out
    [report] = shell("check", "--gpu", "V100 SXM2 32GB", "--max-price", "3", "--json").json["providers"]
    assert report["not_listed"] == ["V100 SXM2 32GB"]
    assert "vastai cannot list V100 SXM2 32GB" in shell("offers", "--gpu", "V100 SXM2 32GB").out
    assert "every provider answered" in shell("check", "--gpu", "V100", "--max-price", "3").out


def test_a_card_that_is_in_no_table_of_a_price_list_is_said(shell: Shell, market: Marketplace) -> None:
    with AzurePrices() as place:
        shell.settings(f'[providers.vastai]\nbase_url = "{market.url}"\n[providers.azure]\nbase_url = "{place.url}"\n')
        ran = shell("check", "--gpu", "RTX 4090", "--max-price", "3")
        assert ran.code == 1
        assert "no offers (azure cannot list RTX 4090; the other provider answered)" in ran.out


def test_a_name_of_no_catalogue_that_nobody_offers_is_said(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    ran = shell("check", "--gpu", "H800", "--max-price", "3")
    assert ran.code == 1
    assert "no offers (no offer is called H800, which is not in gpuwatch's catalogue)" in ran.out


@pytest.mark.parametrize(
    ("coverages", "text"),
    [
        ([Coverage(provider="a"), Coverage(provider="b")], "no offers (every provider answered)"),
        ([Coverage(provider="a", not_listed={"H20"})], "no offers (a cannot list H20)"),
        (
            [Coverage(provider="a", not_listed={"H20"}), Coverage(provider="b"), Coverage(provider="c")],
            "no offers (a cannot list H20; every other provider answered)",
        ),
        (
            [Coverage(provider="a", skipped={"x": 5, "y": 2}), Coverage(provider="b", skipped={"z": 1})],
            "no offers (7 rows of a not understood; 1 row of b not understood)",
        ),
    ],
)
def test_an_empty_result_says_what_it_leaves_open(coverages: list[Coverage], text: str) -> None:
    assert empty_text(coverages, ["H20"], ["H20"]) == text


def test_a_family_is_listed_if_one_of_its_cards_is() -> None:
    one = Coverage(provider="a", not_listed={"H100 NVL"})
    assert empty_text([one], ["H100 SXM", "H100 NVL"], ["H100"]) == "no offers (every provider answered)"
    assert empty_text([one], ["none"], ["none"]) == "no offers (every provider answered)"
