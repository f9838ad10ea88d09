"""`offers`, `check` and `providers` with several providers: merged, marked, and with missing providers named."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sqlalchemy import insert

from gpuwatch.cli.market.offers import ListLayout, live_table, offer_columns
from gpuwatch.cli.terminal_tables import table_cells, table_lines
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.domain.market.resold import FoldedOffer
from gpuwatch.engine.market.browse import ProviderOffers
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.side_tables import seen_value
from tests.builders import NOON, a_match, an_offer
from tests.cli.conftest import Shell
from tests.stalls import ONE, PRICES, TWO, down, open_stalls


@pytest.fixture(autouse=True)
def stalls(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three providers of this test's own, and vast.ai off."""
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__ENABLED", "false")
    with open_stalls(tmp_path, monkeypatch):
        yield


# --- offers -----------------------------------------------------------------------------------------------------------


def test_offers_of_all_providers_are_one_list_by_gpu_price_and_list_prices_are_marked(shell: Shell) -> None:
    ONE.sells(3.0)
    TWO.sells(16.0, gpu_count=8)
    PRICES.sells(2.5)
    ran = shell("offers", "--gpu", "H100")
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["8×", "1×", "1×"]
    assert [name in line for name, line in zip(("two_stall", "prices_stall", "one_stall"), lines[1:], strict=True)]
    assert ["listed" in line for line in lines[1:]] == [False, True, False]
    assert ran.code == 0


def test_all_providers_are_asked_at_once_not_one_after_the_other(shell: Shell) -> None:
    """Each waits until all three have been queried."""
    together = threading.Barrier(3)
    for stall in (ONE, TWO, PRICES):
        stall.waits_for = together
        stall.sells(2.0)
    found = shell("offers", "--json").json
    assert {offer["provider"] for offer in found} == {"one_stall", "two_stall", "prices_stall"}
    assert not together.broken


def test_a_slow_provider_is_one_line_and_the_others_are_shown(shell: Shell) -> None:
    ONE.sells(3.0)
    TWO.sells(1.0)
    TWO.waits_for = threading.Event()
    for timeout_s in (0.3, 3, 15):  # on a busy machine the other one may also need longer
        ran = shell("offers", "--timeout", f"{timeout_s}s", "--json")
        if ran.out.strip() and ran.json:
            break
    assert [offer["provider"] for offer in ran.json] == ["one_stall"]
    assert ran.err.splitlines() == [f"two_stall: no answer within {timeout_s} s"]
    assert ran.code == 3
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "ask two_stall")


def test_each_failure_is_one_line_on_standard_error_and_never_a_traceback(shell: Shell) -> None:
    ONE.fails = down("one_stall")
    TWO.fails = KeyError("price")
    PRICES.sells(3.0)
    ran = shell("offers", "--json")
    assert [offer["provider"] for offer in ran.json] == ["prices_stall"]
    assert sorted(line.split(":")[0] for line in ran.err.splitlines()) == ["one_stall", "two_stall"]
    assert "one_stall: 502 bad gateway" in ran.err
    assert "Traceback" not in ran.err
    assert ran.code == 3


def test_nothing_for_sale_and_nothing_known_are_different_over_several_providers(shell: Shell) -> None:
    empty = shell("offers")
    TWO.fails = down("two_stall")
    silent = shell("offers")
    assert (empty.code, empty.out.strip()) == (0, "no offers (every provider answered)")
    assert (silent.code, silent.out.strip()) == (3, "cannot tell")


@pytest.mark.parametrize(
    ("kind", "asked", "sellers"),
    [
        ("live", ["one_stall", "two_stall"], {"one_stall"}),
        ("listed", ["prices_stall"], {"prices_stall"}),
        ("all", ["one_stall", "two_stall", "prices_stall"], {"one_stall", "prices_stall"}),
    ],
)
def test_a_kind_is_shown_alone_and_who_cannot_have_it_is_not_asked(
    shell: Shell, kind: str, asked: list[str], sellers: set[str]
) -> None:
    ONE.sells(3.0)
    PRICES.sells(2.0)
    found = shell("offers", "--kind", kind, "--json").json
    assert {offer["provider"] for offer in found} == sellers
    assert [one.name for one in (ONE, TWO, PRICES) if one.asked] == asked


def test_nobody_who_could_be_asked_is_no_empty_market(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWATCH_PROVIDERS__PRICES_STALL__ENABLED", "false")
    ran = shell("offers", "--kind", "listed")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.strip() == "no enabled provider gives listed prices; see: gpuwatch providers"


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("gpu-price", ["two_stall-0", "one_stall-0", "one_stall-1"]),
        ("price", ["one_stall-0", "one_stall-1", "two_stall-0"]),
        ("provider", ["one_stall-0", "one_stall-1", "two_stall-0"]),
        ("reliability", ["one_stall-1", "two_stall-0", "one_stall-0"]),
    ],
)
def test_offers_are_sorted_as_asked(shell: Shell, sort: str, order: list[str]) -> None:
    ONE.sells(3.0, reliability=0.9)
    ONE.sells(4.0, reliability=0.999)
    TWO.sells(8.0, gpu_count=8, reliability=0.95)
    assert [offer["offer_id"] for offer in shell("offers", "--sort", sort, "--json").json] == order


def test_a_slice_is_marked_and_stands_behind_every_whole_gpu(shell: Shell) -> None:
    ONE.sells(0.4, terms=OfferTerms(gpu_fraction=1 / 7))
    TWO.sells(3.0)
    whole, piece = shell("offers").out.splitlines()[1:]
    assert "two_stall" in whole
    assert "slice 1/7" in piece


def test_resold_stock_is_shown_once_with_where_else_it_is(shell: Shell) -> None:
    ONE.sells(3.0, region="us-east-1")
    TWO.sells(3.0, region="US East 1", terms=OfferTerms(seller="One_Stall"))
    (line,) = shell("offers").out.splitlines()[1:]
    assert "one_stall" in line
    assert "also via two_stall" in line
    (offer,) = shell("offers", "--json").json
    assert (offer["provider"], offer["also_at"]) == ("one_stall", ["two_stall"])


def test_json_says_the_kind_and_the_terms_of_each_offer(shell: Shell) -> None:
    terms = OfferTerms(seller="oracle", instance_type="BM.GPU.H100.8", prepaid=True, currency="EUR", usd_rate=1.16)
    PRICES.sells(3.0, terms=terms, cpu_arch="aarch64")
    (offer,) = shell("offers", "--json").json
    assert (offer["kind"], offer["seller"], offer["instance_type"]) == ("listed", "oracle", "BM.GPU.H100.8")
    assert (offer["cpu_arch"], offer["gpu_fraction"]) == ("arm64", 1.0)
    assert (offer["terms"]["prepaid"], offer["terms"]["currency"], offer["terms"]["usd_rate"]) == (True, "EUR", 1.16)


def test_groups_have_their_cheapest_their_number_and_their_median(shell: Shell) -> None:
    for price in (2.0, 3.0, 7.0):
        ONE.sells(price)
    TWO.sells(1.0, gpu="RTX 4090", gpu_family="RTX 4090")
    PRICES.sells(1.5)
    found = shell("offers", "--group-by", "gpu", "--json").json
    reported = [(one["group"], one["kind"], one["offers"], one["median_usd_gpu_hour"]) for one in found]
    assert reported == [("RTX 4090", "live", 1, 1.0), ("H100 SXM", "listed", 1, 1.5), ("H100 SXM", "live", 3, 3.0)]
    assert found[2]["cheapest"]["price_usd_hour"] == 2.0
    assert all(query.limit is None for query in ONE.asked), "a count of a cut list is no count"
    limited = shell("offers", "--group-by", "gpu", "--limit", "2", "--json").json
    assert limited == found[:2]
    refused = shell("offers", "--group-by", "gpu", "--sort", "price")
    assert (refused.code, "--sort orders a list" in refused.err) == (2, True)
    assert "one_stall" in shell("offers", "--group-by", "provider").out
    assert "Utah, US" in shell("offers", "--group-by", "region").out


def test_a_terminal_shows_what_has_arrived_and_who_is_being_waited_for() -> None:
    found = [
        ProviderOffers(provider="one_stall", matches=[a_match(an_offer(provider="one_stall", offer_id="77-here"))])
    ]
    screen = Console(file=io.StringIO(), force_terminal=True, width=160)
    screen.print(live_table(found, ["one_stall", "two_stall"], ListLayout(sort="gpu-price", group_by=None, limit=20)))
    text = screen.file.getvalue()  # type: ignore[attr-defined] it is the StringIO
    assert "77-here" in text
    assert "polling two_stall …" in text


def shown_at(width: int, offer: Offer) -> str:
    cells = table_cells(offer_columns(NOON), [FoldedOffer(primary=a_match(offer))])
    return "\n".join(table_lines(*cells, width))


def test_on_a_narrow_terminal_marks_and_prices_stay_and_only_what_is_long_is_cut() -> None:
    offer = an_offer(provider="prices_stall", offer_id="x" * 60, region="somewhere far away", kind=OfferKind.LISTED)
    text = shown_at(120, offer)
    assert all(word in text for word in ("1× H100 SXM", "3.600", "prices_stall", "listed", "x" * 60))


def test_on_a_narrow_terminal_spot_is_never_cut_off() -> None:
    offer = an_offer(gpu="A100 PCIe 80GB", spot=True, offer_id="x" * 60, region="far away from here", provider="p" * 14)
    for width in (60, 80, 120, 200):
        text = shown_at(width, offer)
        assert all(word in text for word in ("1× A100 PCIe 80GB spot", "x" * 60, "3.600"))


def test_machines_without_gpus_are_compared_by_the_price_of_a_vcpu_and_of_a_gib() -> None:
    cpu: dict[str, Any] = {"gpu": "none", "gpu_count": 0, "gpu_memory_gib": None}
    machine = an_offer(**cpu, offer_id="cpu-1", vcpu=16.0, ram_gib=64.0, quoted_usd_hour=0.32)
    text = shown_at(200, machine)
    assert all(word in text for word in ("no GPU, 16 vCPU, 64 GiB", "per vCPU", "$0.0240/h", "per GiB", "$0.0060/h"))
    assert "per vCPU" not in shown_at(200, an_offer(vcpu=16.0, ram_gib=64.0))
    assert "per vCPU" not in shown_at(200, an_offer(**cpu, offer_id="cpu-2"))  # its size is not stated


# --- check ------------------------------------------------------------------------------------------------------------


def test_a_match_is_a_match_though_another_provider_fails(shell: Shell) -> None:
    ONE.sells(3.0)
    TWO.fails = down("two_stall")
    ran = shell("check", "--gpu", "H100", "--max-price", "3.50", "--json")
    assert (ran.code, ran.json["matched"]) == (0, True)
    assert {one["provider"]: one["ok"] for one in ran.json["providers"]} == {
        "one_stall": True, "two_stall": False, "prices_stall": True,
    }  # fmt: skip


def test_check_asks_all_providers_at_once(shell: Shell) -> None:
    together = threading.Barrier(3)
    for stall in (ONE, TWO, PRICES):
        stall.waits_for = together
    assert shell("check", "--gpu", "H100", "--max-price", "3.50", "--json").code == 1
    assert not together.broken


@pytest.mark.parametrize("fault", [down("two_stall"), RecursionError("too deep")])
def test_no_match_and_one_provider_that_fails_is_not_a_no(shell: Shell, fault: Exception) -> None:
    ONE.sells(9.0)
    TWO.fails = fault
    ran = shell("check", "--gpu", "H100", "--max-price", "3.50", "--json")
    assert (ran.code, ran.json["matched"]) == (3, False)
    (broken,) = [one for one in ran.json["providers"] if not one["ok"]]
    assert broken["provider"] == "two_stall"
    assert "Traceback" not in ran.err


def test_everybody_answered_and_nothing_matched_is_a_no(shell: Shell) -> None:
    ONE.sells(9.0)
    assert shell("check", "--gpu", "H100", "--max-price", "3.50", "--json").code == 1


def test_check_marks_list_prices_and_a_watch_may_leave_them_out(shell: Shell) -> None:
    PRICES.sells(2.0)
    watch = '[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 3.0\n'
    shell.settings(watch)
    both = shell("check")
    shell.settings(watch + "listed = false\n")
    live = shell("check", "--json")
    assert both.code == 0
    assert "listed" in both.out.splitlines()[2]
    assert (live.code, [one["provider"] for one in live.json["providers"]]) == (1, ["one_stall", "two_stall"])


def test_a_watch_that_rents_asks_nobody_who_gives_list_prices_alone(shell: Shell) -> None:
    PRICES.sells(2.0, kind=OfferKind.LISTED)
    shell.settings('[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 3.0\naction = "launch"\n')
    ran = shell("check", "--json")
    assert ran.code == 1
    assert not PRICES.asked


def test_explain_says_which_clause_of_the_new_ones_refused_an_offer(shell: Shell) -> None:
    PRICES.sells(2.0)
    ONE.sells(0.4, terms=OfferTerms(gpu_fraction=1 / 7))
    TWO.sells(2.0, cpu_arch="arm64")
    shell.settings('[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 3.0\naction = "launch"\n')
    reported = shell("check", "--explain").err
    assert 'kind: it is a list price, and action = "launch" accepts live offers only' in reported
    assert "gpu: it is a slice of H100 SXM (1/7)" in reported
    assert 'cpu_arch: it is arm64, which requires cpu_arch = "arm64" or "any"' in reported


# --- providers --------------------------------------------------------------------------------------------------------


def test_providers_lists_all_that_are_known_with_their_status(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUT_STALL_KEY", "a-secret-of-the-owner")
    monkeypatch.setenv("GPUWATCH_PROVIDERS__SHUT_STALL__ENABLED", "false")
    ONE.sells(3.0)
    shell("check", "--gpu", "H100", "--max-price", "3.50")
    asked = len(ONE.asked)
    ran = shell("providers", "--json")
    found = {one["provider"]: one for one in ran.json}
    assert len(ONE.asked) == asked
    assert {"one_stall", "prices_stall", "shut_stall", "vastai"} <= set(found)
    assert [found[name]["status"] for name in ("one_stall", "shut_stall", "vastai")] == ["on", "off", "off"]
    assert (found["one_stall"]["last_poll_offers"], found["one_stall"]["last_poll_skipped"]) == (1, 0)
    assert (found["prices_stall"]["kinds"], found["prices_stall"]["can_launch"]) == (["listed"], False)
    assert (found["shut_stall"]["has_key"], found["shut_stall"]["launches"]) == (True, True)
    plain = shell("providers")
    assert "shut_stall" in plain.out
    assert "a-secret-of-the-owner" not in ran.out + plain.out + plain.err


def test_providers_says_of_which_gpu_the_offers_of_the_last_poll_are(shell: Shell) -> None:
    ONE.sells(3.0)
    shell("check", "--gpu", "H100 SXM", "--max-price", "3.50")
    (one,) = [one for one in shell("providers", "--json").json if one["provider"] == "one_stall"]
    assert (one["last_poll_gpu"], one["last_poll_offers"]) == ("H100 SXM", 1)
    assert "1 offer of H100 SXM at that poll (check)" in shell("providers").out


def test_providers_says_how_often_a_sweep_is_due_also_below_a_minute(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    ONE.sells(3.0)
    shell("check", "--gpu", "H100 SXM", "--max-price", "3.50")
    for every, text in (("30s", "every 30s; next"), ("90m", "every 1h30m; next")):
        monkeypatch.setenv("GPUWATCH_PROVIDERS__ONE_STALL__SWEEP_EVERY", every)
        assert text in shell("providers").out


def test_providers_tells_blindness_and_changes_of_the_format(shell: Shell, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'told.db'}"
    shell.settings(f'database_url = "{url}"\n')
    shell.new_store()
    with open_database(url).write() as connection:
        seen = [("field", "new field: x"), ("gpu", "H9000")]
        rows = [{"provider": "one_stall", "kind": kind, "value": value, "first_seen_ms": 1_000} for kind, value in seen]
        connection.execute(insert(seen_value), rows)
    (one,) = [one for one in shell("providers", "--json").json if one["provider"] == "one_stall"]
    assert one["drift"] == [{"text": "new field: x", "first_seen_at": "1970-01-01T00:00:01Z"}]
    assert "format  changed 1 time; last new field: x" in shell("providers").out


def test_the_screen_shows_times_in_the_configured_zone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWATCH_TIMEZONE", "Asia/Tokyo")
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__ENABLED", "true")
    shell.new_store()
    found = shell("providers")
    assert re.search(r"left until \d{4}-\d\d-\d\d 09:00:00 JST", found.out), found.out
