"""`offers`, `providers`, `doctor`, `launches`, `stop`: their output and exit codes."""

from __future__ import annotations

import pytest

from gpuwatch.emulator import Marketplace
from tests.cli.conftest import Shell


def test_offers_are_sorted_by_gpu_price_and_limited(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="RTX 4090", count=4, usd_hour=1.0)
    market.publish(gpu="RTX 4090", count=1, usd_hour=0.4)
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    ran = shell("offers", "--json", "--limit", "2")
    assert [(offer["gpu"], offer["gpu_count"]) for offer in ran.json] == [("RTX 4090", 4), ("RTX 4090", 1)]
    assert ran.code == 0


def test_offers_filters_by_gpu_price_and_count(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="RTX 4090", count=1, usd_hour=0.4)
    market.publish(gpu="RTX 4090", count=2, usd_hour=0.4)
    found = shell("offers", "--gpu", "RTX 4090", "--count", "2", "--max-price", "0.3", "--json").json
    assert [offer["gpu_count"] for offer in found] == [2]


def test_an_empty_market_is_an_answer_and_a_silent_one_is_not(shell: Shell, market: Marketplace) -> None:
    empty = shell("offers", "--gpu", "H100")
    market.faults.add("search", "502", times=None)
    silent = shell("offers", "--gpu", "H100")
    assert (empty.code, silent.code) == (0, 3)
    assert "no offer" in empty.out
    assert "cannot tell" in silent.out


@pytest.mark.parametrize("argv", [("--gpu", "nonsense"), ("--count", "x"), ("--max-price", "-1"), ("--limit", "0")])
def test_offers_refuses_nonsense_with_code_2(shell: Shell, argv: tuple[str, ...]) -> None:
    assert shell("offers", *argv).code == 2


def test_providers_shows_the_rows_of_the_day_and_asks_nobody(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    shell("check", "--gpu", "H100", "--max-price", "3")
    asked = len(market.requests)
    (vastai,) = [one for one in shell("providers", "--json").json if one["provider"] == "vastai"]
    assert len(market.requests) == asked
    assert (vastai["rows_used"], vastai["rows_left"]) == (1, 19_999)
    assert vastai["can_launch"] is False
    assert shell("providers").code == 0


def test_doctor_finds_nothing_broken_and_says_what_is_missing(shell: Shell) -> None:
    ran = shell("doctor")
    assert ran.code == 0, ran.out
    assert "no key" in ran.out
    assert "no channel" in ran.out


def test_doctor_exits_1_and_tells_the_mend_when_a_provider_is_silent(shell: Shell, market: Marketplace) -> None:
    market.faults.add("search", "502", times=None)
    ran = shell("doctor")
    assert ran.code == 1
    assert "FAULT vastai" in ran.out
    assert "→" in ran.out


def test_doctor_tries_the_key_and_never_shows_it(
    shell: Shell, market: Marketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAST_API_KEY", "demo-key")
    good = shell("doctor", "--json")
    monkeypatch.setenv("VAST_API_KEY", "wrong-key-0123456789")
    bad = shell("doctor", "--json")
    assert any("credit" in finding["text"] for finding in good.json)
    assert (good.code, bad.code) == (0, 1)
    assert "wrong-key-0123456789" not in bad.out + bad.err


def test_no_launches_is_an_empty_list(shell: Shell) -> None:
    shell.new_store()
    assert shell("launches", "--json").json == []
    assert "no launches yet" in shell("launches").out


def test_stop_needs_a_launch_that_exists(shell: Shell) -> None:
    assert shell("stop").code == 2
    unknown = shell("stop", "aaaaaaaaaaaa")
    assert unknown.code == 2
    assert "gpuwatch launches" in unknown.err


def test_resolve_needs_one_of_its_two_answers(shell: Shell) -> None:
    assert shell("launches", "resolve", "aaaaaaaaaaaa").code == 2
    assert shell("launches", "resolve", "aaaaaaaaaaaa", "--absent").code == 2


def test_version_and_help_need_no_settings(shell: Shell) -> None:
    shell.settings("broken = [")
    assert shell("--version").out.startswith("gpuwatch ")
    ran = shell("--help")
    assert ran.code == 0
    assert "check" in ran.out
