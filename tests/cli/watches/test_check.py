"""`gpuwatch check`: exit codes, JSON, and honest statements about unknowns."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver
from tests.cli.conftest import Shell

H100 = ("check", "--gpu", "H100", "--max-price")
OFFER_KEYS = (
    "provider offer_id machine_id gpu gpu_family gpu_count gpu_memory_gib spot region country listed_usd_hour"
    " commission price_usd_hour price_usd_gpu_hour reliability verified observed_at"
)


@pytest.fixture(autouse=True)
def store(shell: Shell) -> Path:
    return shell.new_store()


def test_listed_3_00_fires_at_3_60_and_3_01_does_not(shell: Shell, market: Marketplace) -> None:
    offer = market.publish(gpu="H100 SXM", count=1, usd_hour=3.00)
    assert shell(*H100, "3.60").code == 0
    market.reprice(offer, usd_hour=3.01)
    assert shell(*H100, "3.60").code == 1


def test_thresholds_are_per_gpu(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=4, usd_hour=12.00)
    assert shell(*H100, "3.60", "--count", "4").code == 0
    assert shell(*H100, "3.59", "--count", "4").code == 1
    assert shell(*H100, "14.40").code == 1


def test_cheapest_first_and_not_the_first_row(shell: Shell, market: Marketplace) -> None:
    for price in (2.9, 2.5, 2.7):
        market.publish(gpu="H100 SXM", count=1, usd_hour=price)
    (watch,) = shell(*H100, "3.60", "--json").json["watches"]
    assert [offer["listed_usd_hour"] for offer in watch["offers"]] == [2.5, 2.7, 2.9]


def test_the_json_is_the_contracts(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=2, usd_hour=6.00)
    ran = shell(*H100, "3.60", "--count", "2", "--json")
    answer = ran.json
    assert set(answer) == {"checked_at", "matched", "watches", "providers"}
    assert answer["checked_at"].endswith("Z")
    (watch,), (provider,) = answer["watches"], answer["providers"]
    assert {"name", "max_price", "matched", "offers"} <= set(watch)
    (offer,) = watch["offers"]
    assert set(OFFER_KEYS.split()) <= set(offer)
    assert offer["listed_usd_hour"] == 6.0
    assert offer["commission"] == 0.2
    assert offer["price_usd_hour"] == 7.2
    assert offer["price_usd_gpu_hour"] == 3.6
    assert (provider["provider"], provider["ok"], provider["offers"], provider["error"]) == ("vastai", True, 1, None)


def test_no_offer_and_no_data_are_never_the_same(shell: Shell, market: Marketplace) -> None:
    nothing = shell(*H100, "3.60")
    market.faults.add("search", "502", times=None)
    blind = shell(*H100, "3.60")
    assert (nothing.code, blind.code) == (1, 3)
    assert "no offer" in nothing.out
    assert "cannot tell" in blind.out
    assert shell(*H100, "3.60", "--json").json["providers"][0]["ok"] is False


@pytest.mark.parametrize("fault", ["garbage", "empty", "empty_object", "empty_list", "html", "deep", "cut", "renamed"])
def test_an_answer_that_is_not_understood_is_no_data(shell: Shell, market: Marketplace, fault: str) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.0)
    settings = {"field": "dph_total", "to": "price"} if fault == "renamed" else {}
    market.faults.add("search", fault, times=None, **settings)
    ran = shell(*H100, "3.60")
    assert ran.code == 3, ran
    assert "Traceback" not in ran.err


def test_a_bad_row_is_counted_and_the_rest_is_used(shell: Shell, market: Marketplace) -> None:
    for price in (2.0, 2.5, 2.6, 2.7):
        market.publish(gpu="H100 SXM", count=1, usd_hour=price)
    market.faults.add("search", "nan", field="dph_total", every=4, times=None)
    answer = shell(*H100, "3.60", "--json")
    assert answer.code == 0
    assert answer.json["providers"][0]["skipped"] >= 1
    assert "1 row not understood" in answer.err
    assert "vastai: 3 offers in" in answer.err


def test_an_unknown_gpu_stops_with_did_you_mean(shell: Shell) -> None:
    ran = shell("check", "--gpu", "H10O", "--max-price", "3")
    assert ran.code == 2
    assert "did you mean" in ran.err


def test_a_gpu_that_no_catalogue_knows_can_be_watched_under_its_name(
    shell: Shell, market: Marketplace, caplog: pytest.LogCaptureFixture
) -> None:
    """A new card must not wait for a release of gpuwatch; the warning is for a name that is a slip."""
    market.publish(gpu="RTX 5090D", count=1, usd_hour=1.0)
    shell.settings('[[watch]]\nname = "w"\ngpu = "RTX 5090 D"\nmax_price = 3\n')
    ran = shell("check", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["watches"][0]["offers"][0]["gpu"] == "RTX 5090 D"
    assert "'RTX 5090 D' is not in the catalogue: offers match that providers call 'RTX 5090 D'" in caplog.text
    assert shell("check", "--gpu", "NVIDIA GeForce RTX 5090 D", "--max-price", "3").code == 0
    assert shell("check", "--gpu", "RTX 5090", "--max-price", "3").code == 1


def test_a_spelling_that_was_met_can_be_watched(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="Newcard", count=1, usd_hour=1.0)
    shell.settings('[[watch]]\nname = "w"\ngpu = "Newcard"\nmax_price = 3\n')
    assert shell("check").code == 2
    shell.settings('[[watch]]\nname = "w"\ngpu = ["RTX 4090"]\nmax_price = 3\n')
    _meet(shell, "Newcard")
    shell.settings('[[watch]]\nname = "w"\ngpu = "Newcard"\nmax_price = 3\n')
    ran = shell("check", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["watches"][0]["offers"][0]["gpu"] == "Newcard"


def test_the_seed_scripts_h100_80gb_finds_the_h100s(shell: Shell, market: Marketplace) -> None:
    for name in ("H100 SXM", "H100 PCIE", "H100 NVL"):
        market.publish(gpu=name, count=1, usd_hour=2.0)
    (watch,) = shell("check", "--gpu", "H100 80GB", "--max-price", "3", "--json").json["watches"]
    assert {offer["gpu"] for offer in watch["offers"]} == {"H100 SXM", "H100 PCIe", "H100 NVL"}


def test_a_full_page_is_not_the_whole_market(shell: Shell, market: Marketplace) -> None:
    for n in range(90):
        market.publish(gpu="H100 SXM", count=1, usd_hour=1.0 + n / 100, reliability2=0.5)
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.9, reliability2=0.99)
    shell.settings('[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 3.6\nmin_reliability = 0.9\n')
    ran = shell("check", "--json")
    assert ran.code == 0
    assert len(ran.json["watches"][0]["offers"]) == 1


def test_a_page_of_single_gpus_does_not_hide_the_machine_whose_gpus_cost_less(
    shell: Shell, market: Marketplace
) -> None:
    for n in range(64):
        market.publish(gpu="H100 SXM", count=1, usd_hour=1.50 + n / 10_000)
    market.publish(gpu="H100 SXM", count=8, usd_hour=9.60)
    shell.settings('[[watch]]\nname = "w"\ngpu = "H100"\ngpu_count = { min = 1, max = 8 }\nmax_price = 3\n')
    checked = shell("check", "--json").json["watches"][0]["offers"][0]
    listed = shell("offers", "--gpu", "H100", "--count", "1-8", "--json").json[0]
    assert (checked["gpu_count"], checked["price_usd_gpu_hour"]) == (8, 1.44)
    assert (listed["gpu_count"], listed["price_usd_gpu_hour"]) == (8, 1.44)


def test_a_list_that_breaks_off_says_at_which_page_and_why(shell: Shell, market: Marketplace) -> None:
    for n in range(90):
        market.publish(gpu="H100 SXM", count=1, usd_hour=1.0 + n / 100)
    market.faults.add("search", "502", skip=1, times=None)
    ran = shell("offers", "--gpu", "H100", "--group-by", "gpu")
    assert ran.code == 3
    assert "answered only in part: page 2: " in ran.err
    assert "502" in ran.err


def test_the_disk_of_the_watch_is_in_the_price(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0, storage_cost=7.2)
    shell.settings('[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 9\ndisk_gb = 100\n')
    (offer,) = shell("check", "--json").json["watches"][0]["offers"]
    assert offer["listed_usd_hour"] == pytest.approx(3.0)


def test_spot_offers_are_marked_and_priced_as_bids(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.0, min_bid=1.0)
    (offer,) = shell(*H100, "2", "--spot", "only", "--json").json["watches"][0]["offers"]
    assert (offer["spot"], offer["listed_usd_hour"]) == (True, 1.0)
    assert shell(*H100, "2", "--spot", "no").code == 1


def test_ten_watches_are_one_search(shell: Shell, market: Marketplace) -> None:
    shell.settings("".join(f'[[watch]]\nname = "w{n}"\ngpu = "H100"\nmax_price = {n + 1}\n' for n in range(10)))
    shell("check")
    assert [request.method for request in market.requests] == ["GET"]


def test_only_the_named_watches_are_checked(shell: Shell) -> None:
    shell.settings("".join(f'[[watch]]\nname = "w{n}"\ngpu = "H100"\nmax_price = 2\n' for n in range(3)))
    assert [watch["name"] for watch in shell("check", "w1", "--json").json["watches"]] == ["w1"]
    unknown = shell("check", "nope")
    assert unknown.code == 2
    assert "w0, w1, w2" in unknown.err


def test_a_watch_and_a_rule_exclude_each_other(shell: Shell) -> None:
    ran = shell("check", "h100-night", *H100[1:], "3")
    assert (ran.code, ran.out, ran.err) == (2, "", "use either a watch name or --gpu\n")


@pytest.mark.parametrize(
    "argv",
    [("check",), ("check", "--gpu", "H100"), ("check", "--max-price", "3"), (*H100, "-1"), (*H100, "cheap"),
     (*H100, "3", "--count", "0"), (*H100, "3", "--provider", "nowhere"), ("check", "--nonsense")],
)  # fmt: skip
def test_wrong_usage_is_code_2_and_one_line(shell: Shell, argv: tuple[str, ...]) -> None:
    ran = shell(*argv)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err


def test_with_nobody_to_ask_it_does_not_say_that_everybody_answered(shell: Shell) -> None:
    shell.settings('[providers.vastai]\nenabled = false\n[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 9\n')
    ran = shell("check")
    assert ran.code == 2
    assert ran.err


def test_explain_names_the_clause_and_by_how_much(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.10)
    ran = shell(*H100, "3.50", "--explain")
    assert ran.code == 1
    assert "max_price: 3.72 > 3.50" in ran.err
    assert "(no_offer)" in ran.err


def test_explain_shows_the_reason_that_the_daemon_would_find(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    said = shell(*H100, "3.50", "--explain").err
    assert "(first_match)" in said
    assert "compared: " in said
    assert "  best: " in said


def test_explain_says_the_reputation_of_the_best_machine_and_what_it_rests_on(
    shell: Shell, market: Marketplace
) -> None:
    key = f'[providers.vastai]\nbase_url = "{market.url}"\napi_key = "demo-key"\n'
    shell.settings(f'{key}[[watch]]\nname = "good"\ngpu = "H100 SXM"\nmax_price = 9\nmin_reputation = 0.5\n')
    market.publish(gpu="H100 SXM", count=1, usd_hour=0.1)
    said = shell("check", "--explain").err
    assert "  reputation of its machine: 0." in said
    assert "your launches there: 0 succeeded, 0 failed)" in said


def test_too_little_history_to_compare_with_is_said_once(shell: Shell, market: Marketplace) -> None:
    key = f'[providers.vastai]\nbase_url = "{market.url}"\napi_key = "demo-key"\n'
    shell.settings(f'{key}[[watch]]\nname = "rare"\ngpu = "H100 SXM"\npercentile = 5\n')
    market.publish(gpu="H100 SXM", count=1, usd_hour=0.1)
    ran = shell("check")
    assert ran.code == 1
    assert "no offers (every provider answered)" in ran.out
    assert ran.err.count("percentile for H100 SXM: too little history") == 1
    assert ran.err.count("too little history") == 1


def test_what_was_seen_is_kept_in_the_history(shell: Shell, market: Marketplace, store: Path) -> None:
    store.unlink()  # the first check creates it
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.0)
    shell(*H100, "3.60")
    shell(*H100, "3.60")
    assert _count(store, "poll") == 2
    assert _count(store, "price_interval") == 1


def test_no_store_keeps_nothing(shell: Shell, market: Marketplace, store: Path) -> None:
    store.unlink()
    shell(*H100, "3.60", "--no-store")
    assert list((shell.folder / "home").rglob("*.db")) == []


def test_a_store_that_cannot_be_written_does_not_change_the_answer(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.0)
    shell.settings(
        'database_url = "sqlite:////proc/nowhere/x.db"\n[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 9\n'
    )
    ran = shell("check", "--json")
    assert ran.code == 0
    assert ran.json["matched"] is True
    assert "not stored" in ran.err


def test_hostile_text_does_not_reach_the_terminal(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.0, geolocation="\x1b]0;pwned\x07[/red]\u202eevil, US")
    ran = shell(*H100, "3.60")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out
    assert "[/red]" in ran.out


def _meet(shell: Shell, word: str) -> None:
    """The note of the daemon when a sweep shows an unknown spelling."""
    connection = sqlite_driver().connect(str(shell.new_store()))
    connection.execute("INSERT INTO seen_value VALUES ('vastai', 'gpu', ?, 0)", (word,))
    connection.commit()
    connection.close()


def _count(store: Path, table: str) -> int:
    connection: sqlite3.Connection = sqlite_driver().connect(str(store))
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()


def test_offers_and_check_show_one_price_in_one_folder(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=0.9)
    shell.settings("[providers.vastai]\ncommission = 0\n")
    (offer,) = shell("offers", "--json").json
    (watch,) = shell("check", "--gpu", "H100", "--max-price", "2", "--json").json["watches"]
    assert offer["commission"] == 0
    assert watch["offers"][0]["price_usd_hour"] == offer["price_usd_hour"] == offer["listed_usd_hour"]


REGIONS = '[[watch]]\nname = "w"\ngpu = "H100"\nmax_price = 3\nregions = {regions}\n'


def test_regions_takes_groups_of_countries(shell: Shell, market: Marketplace) -> None:
    for place in ("Oslo, NO", "Paris, FR", "Texas, US", "Japan, JP"):
        market.publish(gpu="H100 SXM", count=1, usd_hour=2.0, geolocation=place)
    for group, countries in (("EU", {"FR"}), ("EEA", {"FR", "NO"}), ("NA", {"US"}), ("APAC", {"JP"})):
        shell.settings(REGIONS.format(regions=[group]))
        (watch,) = shell("check", "--json").json["watches"]
        assert {offer["country"] for offer in watch["offers"]} == countries


def test_a_region_that_nothing_is_called_is_refused_with_what_may_have_been_meant(shell: Shell) -> None:
    shell.settings(REGIONS.format(regions=["Norwy"]))
    ran = shell("check")
    assert ran.code == 2
    assert "regions" in ran.err
    assert "did you mean Norway?" in ran.err


def test_a_region_that_the_history_has_recorded_is_accepted(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0, geolocation="Lower Atlantis, AT")
    shell.settings(REGIONS.format(regions=["Atlantis"]))
    assert shell("check").code == 2
    shell.settings(REGIONS.format(regions=[]))
    assert shell("check").code == 0
    shell.settings(REGIONS.format(regions=["Atlantis"]))
    assert shell("check").code == 0


def test_offers_without_a_country_are_counted_under_a_region_filter(shell: Shell, market: Marketplace) -> None:
    for n in range(3):
        market.publish(gpu="H100 SXM", count=1, usd_hour=2.0 + n / 10, geolocation="")
    shell.settings(REGIONS.format(regions=["EU"]))
    ran = shell("check")
    assert ran.code == 1
    assert "vastai: 3 offers without a country that watch 'w' would accept without `regions`" in ran.err
    assert shell("check", "--json").json["providers"][0]["without_country"] == {"w": 3}


def test_the_headline_of_a_rule_names_its_gpu_once(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    ran = shell(*H100, "3.60")
    assert ran.out.startswith("H100: 1 offer at or under $3.60/GPU-h, from $2.40/GPU-h at vast.ai\n")
    assert "vastai: 1 offer in " in ran.err
    assert shell(*H100, "1.00").out.startswith("H100 at or under $1.00/GPU-h: no offers (every provider answered)\n")


def test_a_gpu_that_nothing_is_called_is_refused_by_offers(shell: Shell) -> None:
    ran = shell("offers", "--gpu", "H1000")
    assert ran.code == 2
    assert ran.err.startswith("--gpu: no GPU is called 'H1000'; did you mean H100")


def test_a_matching_watch_that_does_not_rent_says_why(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.00)
    shell.settings(
        'database_url = "sqlite:///gpuwatch.db"\n[providers.vastai]\napi_key = "demo-key"\n'
        '[[watch]]\nname = "rents"\ngpu = ["H100"]\nmax_price = 9.0\naction = "launch"\n'
        '[watch.launch]\nmax_runtime = "1h"\n'
        '[[watch]]\nname = "alerts"\ngpu = ["H100"]\nmax_price = 9.0\n'
    )
    for run in ("without a store", "with one"):
        rents, alerts = json.loads(shell("check", "--json").out)["watches"]
        blocked = (rents["blocked_by"], rents["blocked_reason"])
        assert blocked == ("dry_run", "A dry run rents nothing (dry_run = true)."), run
        assert (alerts["matched"], alerts["blocked_by"], alerts["blocked_reason"]) == (True, None, None)
    assert shell("pause", "--why", "holiday").code == 0
    rents, _ = json.loads(shell("check", "--json").out)["watches"]
    assert rents["blocked_by"] == "paused"
    assert "Renting is paused" in rents["blocked_reason"]
    ran = shell("check")
    assert "not rented: renting is paused until you resume it (holiday)" in ran.out
