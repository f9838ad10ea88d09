"""Compared alternatives: the source's totals, and what a file must not contain."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from importlib.resources import files

import pytest

from gpuwatch.domain.plan.scenario import ScenarioCost, compare_scenarios, parse_scenarios

BUILT_IN = (files("gpuwatch.domain.plan") / "examples" / "naive-or-smart.toml").read_text(encoding="utf-8")


def ways(text: str, price: str = "2") -> list[ScenarioCost]:
    raw = tomllib.loads(text, parse_float=Decimal)
    return compare_scenarios(parse_scenarios(raw), lambda gpu, count: Decimal(price))


def one_step(text: str) -> str:
    return f'[[scenario]]\nname = "a"\n[[scenario.step]]\nname = "s"\n{text}\n'


def test_naive_against_smart_is_what_the_source_prints() -> None:
    naive, smart, with_lora = ways(BUILT_IN)
    assert [cost.usd for cost in naive.costs] == [Decimal("90.00"), Decimal("864.00"), Decimal("172.80")]
    assert naive.total_usd == Decimal("1126.80")
    assert [cost.usd for cost in smart.costs] == [Decimal("1.00"), Decimal("374.40")]
    assert smart.total_usd == Decimal("375.40")
    assert smart.saving_usd == Decimal("751.40")
    assert round(smart.saving_percent or 0, 2) == Decimal("66.68")
    assert with_lora.total_usd == Decimal("225.64")
    assert naive.saving_usd == 0


def test_a_step_may_take_its_price_from_the_market() -> None:
    (found,) = ways(one_step('gpu = "H100"\ngpus = 8\nhours = 2.5'), "1.9")
    assert found.total_usd == Decimal("38.0")
    assert found.costs[0].how == "8 H100 × $1.9 × 2.5 h"


def test_a_percentage_may_be_of_several_steps_and_of_percentages() -> None:
    text = one_step("usd = 100") + (
        '[[scenario.step]]\nname = "t"\npercent = 10\nof = "s"\n'
        '[[scenario.step]]\nname = "u"\npercent = 50\nof = ["s", "t"]\n'
    )
    assert [cost.usd for cost in ways(text)[0].costs] == [100, 10, 55]


def test_a_credit_is_a_negative_amount() -> None:
    text = one_step("usd_hour = 10\nhours = 50") + '[[scenario.step]]\nname = "free credit"\nusd = -300\n'
    assert ways(text)[0].total_usd == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "scenario"),
        ('[[scenario]]\nname = "a"\nstep = []', "at least one [[scenario.step]]"),
        ("scenario = []", "at least one [[scenario]]"),
        (one_step("hours = 1"), "expected one of usd_gpu_hour, usd_hour, usd, gpu, percent"),
        (one_step("usd_hour = 1\nusd = 1\nhours = 1"), "not usd_hour and usd"),
        (one_step("usd_hour = 1"), "hours are missing"),
        (one_step("usd = 1\nhours = 1"), "hours cannot be combined with usd"),
        (one_step("usd_hour = -1\nhours = 1"), "usd_hour: expected a number from 0"),
        (one_step("usd = nan"), "usd: expected a number from -1,000,000,000"),
        (one_step("usd = inf"), "usd: expected a number from -1,000,000,000"),
        (one_step("usd_hour = 1\nhours = 1\ngpus = 0"), "gpus: expected"),
        (one_step('percent = 10\nof = "s"'), "must name earlier steps: there are none"),
        (one_step("percent = 10"), "`of` must name earlier steps"),
        (one_step('usd = 1\nof = "s"'), "`of` requires percent"),
        (one_step('percent = -101\nof = "s"'), "percent: expected a number of at least -100"),
        (one_step("usd = true"), "scenario 1.step 1.usd"),
        (one_step("prize = 1"), "unknown field `prize`"),
    ],
)
def test_a_file_that_makes_no_sense_is_reported_where(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        ways(text)


@pytest.mark.parametrize(
    ("text", "usd"),
    [
        ("usd_hour = 0\nhours = 0", "0"),  # the least values that are allowed
        ("usd_gpu_hour = 2\nhours = 3", "6"),  # one GPU
        ("usd_gpu_hour = 0.00001\nhours = 1\ngpus = 100000", "1"),
    ],
)
def test_a_step_costs(text: str, usd: str) -> None:
    assert ways(one_step(text))[0].total_usd == Decimal(usd)


def test_more_gpus_than_there_are_is_a_fault() -> None:
    with pytest.raises(ValueError, match="gpus: expected a number from 1 to 100,000"):
        ways(one_step("usd_gpu_hour = 1\nhours = 1\ngpus = 100001"))
