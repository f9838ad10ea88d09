"""`gpuwatch plan for`: each kind of owner, with the store's prices and the owner's own launches."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest

from gpuwatch.app.plan.owners.plan_for_json import stale_text
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.plan.owners.owner_cases import Way
from gpuwatch.domain.plan.owners.owner_data import credit_programs, large_clouds, owner_cases
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.cli.conftest import Shell
from tests.cli.plan.test_planner import ran, seen, store
from tests.storage.stored_answers import an_answer, an_offer

__all__ = ["store"]  # the fixture

CASES = ["startup", "company", "academic", "production", "experiments"]
RENT = ("--gpu", "4x RTX 4090", "--rent", "4")


def ways(found: object) -> dict[str, dict[str, object]]:
    return {one["way"]: one for one in found["ways"]}  # type: ignore[index]


@pytest.mark.parametrize("case", CASES)
def test_every_case_answers_first_and_says_why_not(shell: Shell, case: str) -> None:
    shown = shell("plan", "for", case, *RENT)
    assert shown.code == 0
    assert shown.out.startswith("For ")
    assert "Assumed\n- rent $4.00/h on demand (--rent)" in shown.out
    found = shell("plan", "for", case, *RENT, "--json").json
    assert found["sentence"] in shown.out
    by_way = ways(found)
    assert list(by_way) == [way.value for way in Way]
    assert by_way[found["best"]]["why_not"] is None
    for way, reason in owner_cases()[case].why_not.items():
        assert by_way[way.value]["why_not"] in {reason, "the price of a card is unknown: --card-price USD"} or (
            by_way[way.value]["total_usd"] is None
        )
    assert {one["provider"] for one in found["clouds"]} == {"aws", "gcp", "azure"}
    assert all(one["url"].startswith("https://") for one in [*found["clouds"], *found["credits"]])


def test_a_month_and_a_year_are_parts_of_the_whole(shell: Shell) -> None:
    found = shell("plan", "for", "company", *RENT, "--hours-a-day", "12", "--years", "3", "--json").json
    rent = ways(found)["rent"]
    assert rent["total_usd"] == 4 * 12 * 365 * 3
    assert (rent["year_usd"], rent["month_usd"]) == (4 * 12 * 365, 4 * 12 * 365 / 12)
    assert [one["break_even_percent"] for one in found["commitments"]] == [60, 40]
    assert found["commitments"][0]["used_percent"] == 50


def test_owning_equals_plan_buy(shell: Shell) -> None:
    """One mechanism: what `plan buy` prints for the third year is what this adds up."""
    people = [f"--set={key}" for key in ("setup_weeks=3", "setup_hours=40", "upkeep_hours=8", "people_usd_hour=50")]
    bought = shell(
        "plan", "buy", "--card", "RTX 4090", "--cards", "4", "--card-price", "2000", "--rent", "4",
        "--set=extra=0", "--set=years=3", "--set=hours_a_day=12", *people, "--json",
    ).json["tariffs"][0]["years"][-1]  # fmt: skip
    found = shell("plan", "for", "company", *RENT, "--json").json
    assert ways(found)["buy"]["total_usd"] == bought["owned_usd"]
    assert ways(found)["rent"]["total_usd"] == bought["rented_usd"]


def test_the_answer_of_plan_buy_is_that_of_its_years(shell: Shell) -> None:
    """240 days of pay-back are no reason to rent for three years at twice the price."""
    argv = ("plan", "buy", "--card", "RTX 4090", "--cards", "4", "--card-price", "2000", "--set", "extra=0")
    people = [f"--set={key}" for key in ("setup_weeks=3", "setup_hours=40", "upkeep_hours=8", "people_usd_hour=50")]
    found = shell(*argv, *people, "--rent", "4", "--set=years=3", "--set=rent_change=-10", "--json").json
    assert found["sentence"] == (
        "Buy: over 3 years own cards cost $38,511.44–$40,162.44, resold at the end, and renting on demand $90,127.12."
    )
    assert shell(*argv, "--rent", "0.5", "--set=years=1", "--json").json["sentence"].startswith("Rent: over a year own")
    alone = shell(*argv, "--rent", "4", "--json").json
    assert alone["sentence"].startswith("Rent, unless such work goes on for more than 153 days: only then")


def test_prices_are_the_stores_spot_ones_too(shell: Shell, store: Database) -> None:
    seen(store, an_offer("1", 20.0, gpu_count=8))
    at = real_now()
    spot = an_offer("2", 8.0, gpu_count=8, spot=True, observed_at=at)
    SqlHistoryRecorder(store).record(an_answer(spot, observed_at=at), lane="sweep", gpu="", spot=True)
    found = shell("plan", "for", "startup", "--gpu", "8x H100", "--json").json
    assert found["rent_usd_hour"] == 24.0  # commission included
    assert ways(found)["spot"]["how"] == "$9.60/h, the cheapest spot offer (vastai)"
    assert ways(found)["rent"]["how"] == "$24.00/h on demand at vastai"
    assert any(line.startswith("prices: ") and " UTC" in line for line in found["notes"])
    assert found["best"] == "spot"
    assert found["rent_percent_a_year"] < 0  # the trend of the H100
    assert ways(found)["rent"]["total_usd"] < 24 * 8 * 365 * 2


def test_own_launches_are_the_hours_and_the_peaks(shell: Shell, store: Database) -> None:
    ran(store, "a" * 12, hours=48.0, use=None)
    ran(store, "b" * 12, hours=24.0, use=None, slot=1)
    found = shell("plan", "for", "company", "--gpu", "1x H100 SXM", "--rent", "2", "--json").json
    assert found["hours_a_day"] == pytest.approx(72 / 49 * 24, rel=0.01)
    assert "by 2 of your own launches" in found["notes"][0]
    hybrid = ways(found)["hybrid"]
    assert hybrid["total_usd"] is not None
    assert found["base_cards"] in {0, 1, 2}
    assert "in 2 days: a rough estimate" in found["notes"][0]
    argv = ("plan", "for", "company", "--gpu", "1x H100 SXM", "--rent", "2", "--rent-change", "0")
    stated = shell(*argv, "--hours-a-day", "6", "--json").json
    assert stated["hours_a_day"] == 6
    assert (ways(stated)["hybrid"]["total_usd"], ways(stated)["rent"]["total_usd"]) == (None, 2 * 6 * 365 * 3)
    peaks = shell(*argv, "--set", "peak_gpus=2", "--set", "peak_hours=3", "--json").json
    assert ways(peaks)["rent"]["total_usd"] == 2 * (9 + 2 * 3) * 365 * 3, "what is stated replaces the launches"


def test_peaks_may_be_stated(shell: Shell) -> None:
    peaks = ("--set", "peak_gpus=16", "--set", "peak_hours=3")
    found = shell("plan", "for", "company", "--gpu", "4x RTX 4090", "--rent", "1", *peaks, "--json").json
    assert ways(found)["rent"]["total_usd"] == pytest.approx((9 * 4 + 3 * 16) * 0.25 * 365 * 3)
    assert ways(found)["buy"]["how"] == "16× RTX 4090, enough for the peaks, busy 22 %"
    all_day = shell("plan", "for", "company", *RENT, "--set", "peak_gpus=16", "--set", "peak_hours=24", "--json").json
    assert ways(all_day)["rent"]["total_usd"] == 16 * 24 * 365 * 3, "a peak that never ends is no less work"
    assert ways(all_day)["hybrid"]["total_usd"] <= ways(all_day)["rent"]["total_usd"]


def test_the_use_of_a_commitment_leaves_out_what_is_rented_beside_it(shell: Shell) -> None:
    peaks = ("--set", "peak_gpus=16", "--set", "peak_hours=1")
    found = shell("plan", "for", "company", *RENT, *peaks, "--json").json
    assert {one["used_percent"] for one in found["commitments"]} == {50}
    assert ways(found)["reserve"]["total_usd"] > ways(found)["rent"]["total_usd"]


def test_own_credits_come_first_at_their_providers_price(shell: Shell) -> None:
    argv = ("plan", "for", "startup", *RENT, "--credit", "5000", "--set", "credit_days=90", "--json")
    found = shell(*argv).json
    assert found["credits"][0]["program"] == "your credits"
    assert found["best"] == "credits"
    assert found["credits"][0]["saves_usd"] == 4 * 8 * 90  # it expires before it is used up
    assert ways(found)["credits"]["total_usd"] == ways(found)["rent"]["total_usd"] - 4 * 8 * 90


def test_a_credit_is_counted_at_the_list_price_of_its_cloud(shell: Shell) -> None:
    """AWS asks 55.04 $ for what is rented at 20 $ elsewhere: 5,000 $ are 91 hours, not 250."""
    credit = ("--credit", "5000", "--credit-provider", "aws", "--json")
    found = shell("plan", "for", "startup", "--gpu", "8x H100 SXM", "--rent", "20", *credit).json
    assert found["credits"][0]["saves_usd"] == pytest.approx(5000 / 55.04 * 20)
    aws = found["clouds"][0]
    assert (aws["price_usd_hour"], aws["price_quarter"]) == (pytest.approx(55.04), "2026Q1")
    family = shell("plan", "for", "startup", "--gpu", "A100", "--rent", "1.20", "--json").json
    assert (family["gpu"], family["clouds"][0]["price_usd_hour"]) == ("A100 SXM 80GB", pytest.approx(3.430881))
    unknown = shell("plan", "for", "startup", *RENT, "--credit", "5000", "--credit-provider", "asw", "--json").json
    assert "no price of asw is known: your credits are counted at your rent" in unknown["notes"]


@pytest.mark.parametrize("case", CASES)
def test_a_trial_that_nobody_has_yet_is_never_the_advice(shell: Shell, case: str) -> None:
    """GPUs need a paid account and a granted quota first."""
    found = shell("plan", "for", case, *RENT, "--json").json
    assert found["best"] != "credits"
    assert ways(found)["credits"]["why_not"] is not None


def test_a_commitment_dearer_than_on_demand_never_pays(shell: Shell) -> None:
    """Rents fall by 20 % a year: 5 % off today's price is more than a year on demand costs."""
    argv = ("plan", "for", "production", *RENT, "--rent-change", "-20", "--set", "reserved=5")
    out = shell(*argv).out
    assert "- reserve: −5 % for 1 y; never pays\n" in out
    assert "- a commitment at −5 % for 1 y never pays; you use 100 %\n" in out
    assert ways(shell(*argv, "--json").json)["reserve"]["total_usd"] > 4 * 24 * 365 * 3 * 0.75


def test_many_hours_are_worth_a_commitment_to_anybody(shell: Shell) -> None:
    """A reason such as "few hours are used" cannot stand beside 16 hours a day."""
    argv = ("plan", "for", "experiments", "--gpu", "1x RTX 4090", "--rent", "0.4", "--hours-a-day", "16", "--json")
    assert shell(*argv).json["best"] == "reserve"
    assert shell(*argv[:-3], "--json").json["best"] == "rent"


def test_without_the_price_of_a_card_no_pay_back_is_stated(shell: Shell) -> None:
    argv = ("plan", "for", "production", "--gpu", "2x L4", "--rent", "1.2")
    line = next(line for line in shell(*argv).out.splitlines() if "the rent of L4 changes" in line)
    assert "pays back" not in line
    assert "owning pays back" in shell(*argv, "--card-price", "2500").out


def test_reasons_are_sentences_and_no_column_cuts_them(shell: Shell) -> None:
    out = shell("plan", "for", "startup", *RENT).out
    assert "- buy: 4× RTX 4090 for $13,000.00, resold after 2 y (the money is bound while plans change)\n" in out
    assert "- azure for whom: companies" in out
    assert "- Free Trial: new customers; GPUs only after" in out


def test_what_cannot_be_computed_says_what_to_add(shell: Shell) -> None:
    ran = shell("plan", "for", "company", "--gpu", "L40S", "--rent", "1", "--json")
    assert ways(ran.json)["buy"]["why_not"] == "the price of a card is unknown: --card-price USD"
    known = shell("plan", "for", "company", "--gpu", "L40S", "--rent", "1", "--card-price", "8000", "--json").json
    assert ways(known)["buy"]["total_usd"] > 0


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nobody"], "nobody"),
        (["startup"], "there is no database"),
        (["startup"], "or add --poll for current prices, or --rent USD per hour"),
        (["startup", *RENT, "--set", "cards=8"], "cards has no effect here"),
        (["startup", *RENT, "--set", "launches=true"], "launches has no effect here"),
        (["startup", *RENT, "--set", "peak_gpus=16"], "peak_gpus and peak_hours belong together"),
        (["startup", *RENT, "--set", "peak_gpus=4", "--set", "peak_hours=2"], "expected more than the 4 of --gpu"),
        (["startup", *RENT, "--credit-provider", "aws"], "--credit-provider requires --credit"),
        (["startup", "--gpu", "zz", "--rent", "1"], "zz"),
        (["startup", *RENT, "--set", "trend=T4", "--rent-change", "5"], "rent_change states the change"),
    ],
)
def test_wrong_input_is_one_line(shell: Shell, argv: list[str], said: str) -> None:
    shell.settings(f'database_url = "sqlite:///{shell.folder}/none.db"\n')
    ran = shell("plan", "for", *argv)
    assert (ran.code != 0, ran.out, said in ran.err) == (True, "", True)


def test_no_answer_is_not_no_offer(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__BASE_URL", "http://127.0.0.1:9")
    ran = shell("plan", "for", "startup", "--gpu", "8x H100", "--poll")
    assert (ran.code, ran.out) == (3, "")
    assert "no provider offers it" not in ran.err
    assert "vastai: " in ran.err
    assert "--rent states one" in ran.err


def test_the_gpu_of_the_offer_is_named_if_another_was_meant(shell: Shell, store: Database) -> None:
    seen(store, an_offer("1", 8.0, gpu_count=8, gpu="A100 SXM 40GB", gpu_family="A100"))
    found = shell("plan", "for", "startup", "--gpu", "8x A100", "--json").json
    assert ways(found)["rent"]["how"] == "$9.60/h on demand at vastai, A100 SXM 40GB"


def test_a_gpu_without_a_price_says_how_to_give_one(shell: Shell, store: Database) -> None:
    ran = shell("plan", "for", "startup", "--gpu", "8x B200")
    assert (ran.code, "no price of 8× B200" in ran.err, "--rent USD" in ran.err) == (2, True, True)


def test_each_program_has_a_page_and_a_day_and_old_ones_are_said_to_be_old() -> None:
    programs = credit_programs()
    assert len(programs) >= 10
    assert {name for program in programs for name in program.cases} == set(CASES) == set(owner_cases())
    for program in programs:
        assert program.url.startswith("https://")
        assert stale_text(program, program.looked_up + timedelta(days=181)).startswith(f"looked up {program.looked_up}")
    trial = next(program for program in programs if program.name == "Free Trial")
    assert (trial.usd, trial.days, trial.open) == (Decimal(300), 90, True)  # the articles: $300 of Google Cloud
    assert stale_text(trial, date(2026, 12, 1)) == ""
    assert [cloud.provider for cloud in large_clouds()] == ["aws", "gcp", "azure"]
