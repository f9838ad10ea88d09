"""`gpuwatch plan scenario`, `buy`, `use` and `fit`, as a user types them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.instances.instance_checks import UtilisationSample
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState, new_launch
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.launches.invoice_rows import SqlUtilisationRepository
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from tests.builders import a_match, a_watch, changed
from tests.checkout import ROOT
from tests.cli.conftest import Shell
from tests.storage.stored_answers import an_answer, an_offer
from tests.upgraded_store import open_upgraded

VAST = ROOT / "tests/recorded/price-history/vastai-offers-2026-02-27_03-03.csv.gz"
AWS = ROOT / "tests/recorded/price-history/aws-ondemand-us-east-1-2022-07_2024-12.csv.gz"


@pytest.fixture
def store(shell: Shell) -> Iterator[Database]:
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    shell.settings(f'database_url = "{url}"\n')
    opened = open_upgraded(url)
    yield opened
    opened.close()


def seen(store: Database, *offers: Any, ago: timedelta = timedelta(0), provider: str = "vastai") -> None:
    at = real_now() - ago
    shown = [changed(offer, observed_at=at, provider=provider) for offer in offers]
    answer = an_answer(*shown, observed_at=at, provider=provider)
    SqlHistoryRecorder(store).record(answer, lane="sweep", gpu="", spot=False)


def ran(store: Database, launch_id: str, hours: float, use: float | None, **changes: Any) -> Launch:
    """A launch that ran at 3.60 with commission until an hour ago."""
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
    now = real_now()  # the suite may take an hour from when it loads this file to here
    began = now - timedelta(hours=hours + 1)
    plain = new_launch(Intent(watch=watch, match=a_match(), launch_id=launch_id, dry_run=False), 0, began)
    life = {"state": LaunchState.ENDED, "instance_id": launch_id[0], "running_at": began}
    launch: Launch = changed(plain, ended_at=now - timedelta(hours=1), **(life | changes))
    with store.write() as connection:
        connection.execute(insert(launches).values(**launch_row_of(launch)))
    if use is not None:
        for minute in (1, 2):
            SqlUtilisationRepository(store).add(launch_id, UtilisationSample(began + timedelta(minutes=minute), use))
    return launch


# --- scenario ---------------------------------------------------------------------------------------------------------


def test_the_example_is_a_file_that_reads_back(shell: Shell) -> None:
    (shell.folder / "mine.toml").write_text(shell("plan", "scenario", "--example").out)
    assert shell("plan", "scenario", "mine.toml", "--json").json["scenarios"][0]["total_usd"] == 1126.8


def test_a_step_takes_the_cheapest_price_of_the_store(shell: Shell, store: Database) -> None:
    seen(store, an_offer("1", 20.0, gpu_count=8), an_offer("2", 1.0))
    step = '[[scenario]]\nname = "a"\n[[scenario.step]]\nname = "t"\nhours = 10\ngpus = 8\ngpu = "H100"\n'
    (shell.folder / "mine.toml").write_text(step)
    assert shell("plan", "scenario", "mine.toml", "--json").json["scenarios"][0]["total_usd"] == 240.0
    (shell.folder / "mine.toml").write_text(step.replace("H100", "B200"))
    none = shell("plan", "scenario", "mine.toml")
    assert (none.code, "the store has no offer with 8× B200" in none.err) == (2, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "scenario"),
        (b"\xff", "mine.toml: "),
        (b"[[scenario]\n", "mine.toml: "),
        (b'[[scenario]]\nname = "a\\u001b[31m"\n', "mine.toml: "),
        (b"x = 1e9999999999\n", "mine.toml: "),
        (b"x = " + b"[" * 100_000, "mine.toml: "),
        (b"#" * 1_000_001, "expected a file of at"),
    ],
)
def test_a_scenario_file_that_is_no_good_is_one_line(shell: Shell, content: bytes, said: str) -> None:
    (shell.folder / "mine.toml").write_bytes(content)
    reported = shell("plan", "scenario", "mine.toml")
    assert (reported.code, reported.out, reported.err.count("\n")) == (2, "", 1)
    assert said in reported.err
    assert "\x1b" not in reported.err


# --- buy --------------------------------------------------------------------------------------------------------------


def test_corrected_is_the_default_with_reserved_and_spot_beside(shell: Shell) -> None:
    shown = shell("plan", "buy")
    assert "on demand  reserved −40 %  reserved −60 %  spot −70 %  spot −90 %" in shown.out
    assert "16.6" in shown.out
    assert "6.55 days" in shown.err  # the result of the source's formula
    found = shell("plan", "buy", "--json").json
    assert [one["verdict"] for one in found["tariffs"]] == ["green", "green", "amber", "amber", "red"]
    assert found["own"]["cards"] == 6


def test_a_rent_may_come_from_the_store(shell: Shell, store: Database) -> None:
    seen(store, an_offer("1", 20.0, gpu_count=8))
    for text in ("8x H100 SXM", "8×H100", "H100"):
        found = shell("plan", "buy", "--cards", "8", "--rent-gpu", text, "--json").json["tariffs"][0]
        assert (found["name"], found["price_usd_hour"]) == ("8× H100 SXM", 24.0)


def test_the_own_launches_say_how_much_is_rented(shell: Shell, store: Database) -> None:
    ran(store, "a" * 12, hours=48.0, use=50.0)
    ran(store, "b" * 12, hours=48.0, use=None, slot=1)
    found = shell("plan", "buy", "--cards", "4", "--card-price", "100", "--set", "other=0", "--launches", "--json").json
    (one,) = found["tariffs"]
    assert (one["name"], found["log"]["launches"]) == ("as you rented", 2)
    assert found["log"]["gpu_hours"] == pytest.approx(96.0, rel=1e-3)
    assert one["price_usd_hour"] == pytest.approx(4 * 3.6, rel=1e-3)
    reported = shell("plan", "buy", "--cards", "1", "--launches")
    # 96 of the 49 hours since the start of the first, plus the seconds that this test has taken
    assert re.search(r"your own cards would be busy 19[56] % of the time \(exceeds their capacity", reported.err)
    assert "a rough estimate" in reported.err


def test_own_launches_that_say_nothing_are_not_enough_data(shell: Shell, store: Database) -> None:
    reported = shell("plan", "buy", "--cards", "4", "--launches")
    assert (reported.code, "not enough data: no launches" in reported.err) == (3, True)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--card", "H100"], "the price of one H100 is unknown"),
        (["--card", "Nobody"], "unknown GPU 'Nobody'"),
        (["--card-price", "much"], "--card-price: expected a number"),
        (["--rent", "0"], "--rent: expected a number above 0"),
        (["--rent", "inf"], "--rent: expected a finite number"),
        (["--rent", "3", "--rent-gpu", "H100"], "either --rent or --rent-gpu"),
        (["--rent-gpu", "zz"], "--rent-gpu: expected GPUs"),
        (["--set", "reserved=60-40-20"], "reserved: expected percent"),
        (["--set", "spot=100"], "spot: expected percent under 100"),
        (["--since", "9d"], "--since requires --launches"),
        (["--days", "0"], "--days"),
        (["--launches", "--since", "soon"], "expected a duration"),
    ],
)
def test_wrong_input_to_buy_is_one_line(shell: Shell, argv: list[str], said: str) -> None:
    reported = shell("plan", "buy", *argv)
    assert (reported.code, reported.out) == (2, "")
    assert said in reported.err


def test_cards_that_do_not_hold_the_model_are_reported(shell: Shell) -> None:
    assert "4 cards of 24 GB do not hold 140 GB" in shell("plan", "buy", "--cards", "4", "--memory", "140").err


# --- use --------------------------------------------------------------------------------------------------------------


def test_four_dollars_at_15_70_and_90_percent(shell: Shell) -> None:
    shown = shell("plan", "use", "--price", "4.00").out
    for figure in ("26.67", "5.71", "4.44"):
        assert figure in shown
    found = shell("plan", "use", "--price", "4", "--use", "15", "--use", "0", "--json").json["uses"]
    assert (round(found[0]["useful_usd_gpu_hour"], 2), found[1]["useful_usd_gpu_hour"]) == (26.67, None)


def test_own_launches_are_judged_by_what_was_measured(shell: Shell, store: Database) -> None:
    ran(store, "a" * 12, hours=10.0, use=15.0)
    ran(store, "b" * 12, hours=10.0, use=None, slot=1)
    shown = shell("plan", "use", "--launches")
    assert shown.code == 0
    assert "24.00" in shown.out  # 3.60 ÷ 15 %
    assert "not measured" in shown.out
    assert "$30.60 in total paid for idle time" in shown.err
    found = {one["launch_id"]: one for one in shell("plan", "use", "--launches", "--json").json["launches"]}
    assert (found["a" * 12]["verdict"], found["b" * 12]["verdict"]) == ("bottleneck", None)


def test_without_a_measure_there_is_not_enough_data(shell: Shell, store: Database) -> None:
    assert shell("plan", "use", "--launches").code == 3


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--price", "x"],
        ["--price", "4", "--use", "101"],
        ["--price", "4", "--use", "nan"],
        ["--launches", "--price", "4"],
        ["--price", "4", "--low", "95"],
        ["--price", "4", "--since", "9d"],
    ],
)
def test_wrong_input_to_use(shell: Shell, argv: list[str]) -> None:
    reported = shell("plan", "use", *argv)
    assert (reported.code, reported.out) == (2, "")


# --- fit --------------------------------------------------------------------------------------------------------------


def test_b200_against_h100_by_given_prices(shell: Shell) -> None:
    argv = ["--price", "B200=9.50-12.00", "--price", "H100 SXM=3.50-5.50", "--against", "H100 SXM"]
    assert "2.18–2.71" in shell("plan", "fit", *argv).out
    found = {one["gpu"]: one for one in shell("plan", "fit", *argv, "--json").json["choices"]}
    times = found["B200 SXM"]["times_dearer"]
    assert (times["than"], round(times["low"], 2), round(times["high"], 2)) == ("H100 SXM", 2.18, 2.71)


def test_the_store_s_newest_look_with_commission(shell: Shell, store: Database) -> None:
    seen(store, an_offer("1", 3.0), an_offer("2", 2.0), an_offer("3", 16.0, gpu_count=8), ago=timedelta(minutes=10))
    found = shell("plan", "fit", "--vram", "60", "--json").json
    (one,) = found["choices"]
    assert (one["gpu"], one["price_usd_hour"], one["offers"], found["samples"]) == ("H100 SXM", 2.4, 3, 3)
    (one,) = shell("plan", "fit", "--vram", "100", "--json").json["choices"]
    assert (one["gpu_count"], one["cards_needed"], one["price_usd_hour"]) == (8, 2, 19.2)
    none = shell("plan", "fit", "--vram", "2000")
    assert (none.code, "No offer fits." in none.out) == (1, True)


def test_a_provider_that_was_not_asked_for_hours_does_not_count_as_now(shell: Shell, store: Database) -> None:
    seen(store, an_offer("1", 0.5), ago=timedelta(days=2), provider="runpod")
    seen(store, an_offer("2", 3.0), ago=timedelta(minutes=10))
    found = shell("plan", "fit", "--json").json
    assert [(one["provider"], one["price_usd_hour"]) for one in found["choices"]] == [("vastai", 3.6)]


def test_list_prices_count_only_if_they_are_asked_for(shell: Shell, store: Database) -> None:
    seen(store, an_offer("1", 3.0, kind=OfferKind.LISTED), ago=timedelta(minutes=10), provider="gcp:listed")
    assert shell("plan", "fit").code == 3
    found = shell("plan", "fit", "--listed", "--json").json["choices"]
    assert [(one["provider"], one["price_usd_hour"]) for one in found] == [("gcp", 3.0)]


def test_a_list_that_is_asked_for_a_few_times_a_day_counts_as_now_for_longer(shell: Shell, store: Database) -> None:
    seen(store, an_offer("1", 3.0, kind=OfferKind.LISTED), ago=timedelta(hours=12), provider="gcp:listed")
    seen(store, an_offer("2", 0.5), ago=timedelta(hours=12), provider="runpod")
    seen(store, an_offer("3", 2.6), ago=timedelta(minutes=10))
    found = shell("plan", "fit", "--listed", "--gpu", "H100", "--json").json
    assert (found["samples"], found["choices"][0]["price_usd_hour"], found["choices"][0]["offers"]) == (2, 3.0, 2)


def test_an_old_look_is_reported(shell: Shell, store: Database) -> None:
    seen(store, an_offer("1", 3.0), ago=timedelta(days=2))
    assert "(outdated: fetch current ones with --poll)" in shell("plan", "fit").err


def test_an_empty_store_and_none_at_all(shell: Shell, store: Database) -> None:
    empty = shell("plan", "fit")
    assert (empty.code, "not enough data" in empty.err) == (3, True)
    shell.settings(f'database_url = "sqlite:///{shell.folder}/none.db"\n')
    none = shell("plan", "fit")
    assert (none.code, "--poll for current prices" in none.err) == (3, True)


def test_the_markets_are_asked_with_now(shell: Shell, market: Any) -> None:
    market.publish(gpu_name="H100 SXM", num_gpus=1, dph_base=2.0)
    found = shell("plan", "fit", "--now", "--json")
    assert found.code == 0
    assert [one["gpu"] for one in found.json["choices"]] == ["H100 SXM"]


def test_the_public_series_by_latency(shell: Shell) -> None:
    argv = ["--data", str(AWS), "--task", "inference", "--vram", "14", "--latency"]
    assert shell("plan", "fit", *argv, "interactive", "--json").json["choices"][0]["gpu"] == "T4G"
    quick = shell("plan", "fit", *argv, "realtime", "--json").json["choices"]
    assert all(one["token_ms"] <= 20 for one in quick)
    assert "T4G" not in {one["gpu"] for one in quick if one["gpu_count"] == 1}


def test_a_model_may_be_named_instead_of_its_memory(shell: Shell) -> None:
    found = shell("plan", "fit", "--data", str(VAST), "--size-of", "8B", "--method", "lora", "--json").json
    assert (found["task"], found["by"]) == ("training", "compute")
    assert 16 < found["vram_gb"] < 40


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--price", "H100"], "expected GPU=USD"),
        (["--price", "H10=3"], "unknown GPU 'H10'; did you mean"),
        (["--price", "H100=3-2"], "expected the lower price first"),
        (["--price", "H100=nan"], "expected USD above 0"),
        (["--price", "H100=3", "--now"], "use only one of"),
        (["--price", "H100=3", "--latency", "realtime"], "--latency realtime applies to inference"),
        (["--price", "H100=3", "--vram", "5", "--size-of", "8B"], "either --vram or --size-of"),
        (["--price", "H100=3", "--against", "B200"], "has no offer with"),
        (["--price", "H100=3", "--gpu", "zz"], "unknown GPU 'zz'"),
        (["--price", "H100=3", "--vram", "nan"], "--vram"),
        (["--price", "H100=3", "--provider", "vastai"], "--provider applies to offers"),
        (["--price", "H100=3", "--any-price"], "--any-price applies to offers: omit --price"),
        (["--price", "H100=3", "--set", "batch=4"], "batch requires a model"),
        (["--price", "H100=3", "--task", "inference", "--vram", "9", "--set", "any_link=true"], "training only"),
        (["--price", "H100=3", "--task", "inference", "--size-of", "8B", "--method", "full"], "conflicts with"),
        (["--provider", "nobody", "--now"], "there is no provider 'nobody'"),
    ],
)
def test_wrong_input_to_fit_is_one_line(shell: Shell, argv: list[str], said: str) -> None:
    reported = shell("plan", "fit", *argv)
    assert (reported.code, reported.out) == (2, "")
    assert said in reported.err


# --- the page ---------------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs/planner.md").read_text(encoding="utf-8")
SHOWN = [
    block for block in re.findall(r"```console\n\$ gpuwatch (.*?)```", PAGE, re.DOTALL) if "\n$ gpuwatch" not in block
]


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.partition("\n")[0][:40])
def test_the_page_shows_what_the_command_prints(shell: Shell, monkeypatch: pytest.MonkeyPatch, block: str) -> None:
    monkeypatch.chdir(ROOT)
    command, _, output = block.replace("\\\n", " ").partition("\n")
    printed = shell(*shlex.split(command)).out
    assert output.strip()
    assert output in printed
