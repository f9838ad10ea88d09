"""`gpuwatch plan card`, and the figures of a card as conditions of watches, offers and plans."""

from __future__ import annotations

import pytest

from gpuwatch.emulator import Marketplace
from tests.cli.conftest import Shell


def test_a_specification_with_a_source_for_each_figure_and_what_it_is_good_for(shell: Shell) -> None:
    ran = shell("plan", "card", "H100 SXM")
    assert ran.code == 0
    for part in ("3,350 GB/s", "16,896", "1,980 MHz", "700 W", "900 GB/s", "techpowerup.com", "training: yes"):
        assert part in ran.out
    [card] = shell("plan", "card", "nvidia h100 80gb hbm3", "--json").json["cards"]
    assert card["figures"]["gpu_bw"] == 3350
    assert (card["figures"]["ecc"], card["figures"]["datacenter_card"]) == (True, True)
    assert all(card["sources"][key] for key, value in card["figures"].items() if value is not None)
    assert card["largest_model_b"]["QLoRA"] == {"one_card": 70, "eight_cards": 405}


def test_what_no_source_states_is_unknown(shell: Shell) -> None:
    [card] = shell("plan", "card", "910B", "--json").json["cards"]
    assert (card["gpu"], card["figures"]["gpu_ram"], card["figures"]["tflops"]) == ("Ascend 910B", 64, None)
    assert card["sources"]["tflops"] is None
    shown = shell("plan", "card", "910B").out
    assert "training: unknown: no source states its rate in 16 bits" in shown
    assert "CANN; images for CUDA do not run on it" in shown


def test_a_family_is_all_its_cards_and_a_slip_is_one_line(shell: Shell) -> None:
    names = [card["gpu"] for card in shell("plan", "card", "H100", "--json").json["cards"]]
    assert names == ["H100 SXM", "H100 PCIe", "H100 NVL"]
    ran = shell("plan", "card", "H10O")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_an_amd_card_has_matrix_units_and_nothing_is_said_of_a_link_that_no_source_states(shell: Shell) -> None:
    for name in ("MI100", "MI210"):  # gpuopen.com, AMD matrix cores: since the first CDNA
        shown = shell("plan", "card", name).out
        assert "training: yes" in shown
        assert "the link between several cards: unknown" in shown
    for name in ("MI250X", "MI300A", "MI325X", "MI355X"):
        assert "Infinity Fabric" in shell("plan", "card", name).out
    assert "PCIe" not in shell("plan", "card", "Ascend 910C").out
    assert "no matrix units" in shell("plan", "card", "Tesla P40").out  # though no source states its 16-bit rate


def test_a_card_for_games_says_what_its_licence_excludes(shell: Shell) -> None:
    assert "the licence of its driver excludes data centers" in shell("plan", "card", "RTX 3090").out


@pytest.fixture
def two_cards(market: Marketplace) -> Marketplace:
    market.publish(gpu="RTX 4090", count=1, usd_hour=0.30, disk_bw=400.0, disk_space=500)
    market.publish(gpu="L40S", count=1, usd_hour=0.80, disk_bw=3000.0, disk_space=500)
    return market


def test_a_watch_takes_them_as_conditions_and_an_unknown_value_does_not_match(
    shell: Shell, two_cards: Marketplace
) -> None:
    """The RTX 4090's ECC is on no data sheet: it is unknown, so the cheaper card is not taken."""
    settings = f'[providers.vastai]\nbase_url = "{two_cards.url}"\n[[watch]]\nname = "w"\nmax_price = 9\n'
    shell.settings(settings + 'gpu = ["RTX 4090", "L40S"]\nwhen = "ecc and disk_bw >= 1000 and watts <= 400"\n')
    ran = shell("check", "--json")
    assert [offer["gpu"] for offer in ran.json["watches"][0]["offers"]] == ["L40S"]
    assert ran.json["watches"][0]["offers"][0]["disk_mb_s"] == 3000
    shell.settings(settings + 'gpu = "RTX 4090"\nwhen = "ecc"\n')
    assert "when: ecc is unknown" in shell("check", "--explain").err
    shell.settings(settings + 'gpu = "RTX 4090"\nwhen = "datacenter_card or cuda_cores > 20000"\n')
    assert "datacenter_card is false, and cuda_cores is 16384, not > 20000" in shell("check", "--explain").err


def test_offers_and_plans_take_the_same_conditions(shell: Shell, two_cards: Marketplace) -> None:
    shell.settings(f'[providers.vastai]\nbase_url = "{two_cards.url}"\n')
    gpus = ("--gpu", "RTX 4090", "--gpu", "L40S")
    assert [one["gpu"] for one in shell("offers", *gpus, "--when", "datacenter_card", "--json").json] == ["L40S"]
    fit = ("plan", "fit", "--vram", "20", "--poll", *gpus, "--json")
    assert {one["gpu"] for one in shell(*fit).json["choices"]} == {"RTX 4090", "L40S"}
    assert [one["gpu"] for one in shell(*fit, "--set", "when=disk_bw >= 1000").json["choices"]] == ["L40S"]
    job = ("plan", "job", "--tokens", "1M", "--size-of", "1B", "--method", "qlora", *gpus, "--poll")
    found = shell(*job, "--set", "when=ecc", "--json").json["offers"]
    assert [one["gpu"] for one in found] == ["L40S"]
    assert "when" in shell(*job, "--set", "when=ecc", "--watch", "w").out
    ran = shell("offers", *gpus, "--when", "disk_bw >= fast")
    assert (ran.code, "--when 'disk_bw >= fast': at character 12" in ran.err) == (2, True)
    # the store keeps the card, but not the speed of the disk: what is unknown does not match
    shell("check", *gpus[:2], "--max-price", "9")
    assert shell("plan", "fit", "--vram", "20", "--set", "when=disk_bw >= 1", "--json").json["choices"] == []
