"""What one change does to a job: the published rules come out, and each row is the plan with that key set."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.app.plan.plan_job import plan_on_hardware
from gpuwatch.app.plan.plan_request import job_request, set_values
from gpuwatch.app.plan.plan_size import memory_needed
from gpuwatch.app.plan.what_if import Change, changes_json, changes_sentence, what_changes
from gpuwatch.errors import UsageError

JOB = {"model": "1B", "tokens": "1B", "candidates": ["1x H100 @ 2.00"]}


def changes(**more: Any) -> dict[str, Change]:
    return {change.name: change for change in what_changes(job_request(JOB | more))}


@pytest.mark.parametrize("method", ["full", "lora", "qlora", "inference"])
def test_each_row_is_the_plan_with_that_key_set(method: str) -> None:
    found = what_changes(job_request(JOB | {"method": method}))
    assert {change.key for change in found} >= {"", "batch"}
    for change in found:
        stated = set_values([f"{change.key}={change.value}"]) if change.key else {}
        again = job_request(JOB | {"method": method} | stated)
        work = again.workload()
        assert work is not None
        assert change.memory_gb == memory_needed(work).gb
        if change.hours is not None:
            (compared,) = plan_on_hardware(again).compared
            assert change.hours.high == pytest.approx(compared.cost.high.work_h)


def test_the_rules_of_the_publications_come_out() -> None:
    found = changes(context=8192)
    first = found["as it is"]
    assert 2 <= (found["32 bits"].times(first) or 0) <= 3  # the articles: mixed precision
    assert 0.5 <= (found["fp8"].times(first) or 0) < 1  # at most twice as fast
    assert found["without FlashAttention"].times(first) == pytest.approx(3, rel=0.15)  # Dao, 2023, table 1
    kept = found["without checkpointing"]
    assert kept.times(first) == pytest.approx(1 / 1.25)
    assert kept.memory_gb > first.memory_gb
    assert found["QLoRA, 4 bits"].memory_gb < found["LoRA"].memory_gb < first.memory_gb
    assert found["batch 2"].memory_gb > first.memory_gb
    assert found["batch 2"].hours is None


def test_the_time_is_known_where_the_memory_is_too_small() -> None:
    found = changes(model="8B")
    assert (found["as it is"].fits, found["LoRA"].fits) == (False, True)
    assert found["as it is"].hours is not None


def test_a_card_without_such_units_gains_nothing_or_is_refused() -> None:
    for card in ("V100", "T4", "A100", "RTX 3090"):
        fp8 = changes(candidates=[f"1x {card} @ 1.20"], precision="fp16")["fp8"]
        assert (fp8.hours, "cannot train in fp8" in fp8.why_not) == (None, True), card
    with pytest.raises(UsageError, match="does not support bf16"):
        changes(candidates=["1x V100 @ 1.20"])
    volta = changes(candidates=["1x V100 @ 1.20"], precision="fp16")
    assert 3.6 <= (volta["32 bits"].times(volta["as it is"]) or 0) <= 4.4  # NVIDIA's BERT on V100: 3.6 to 4.1


def test_qlora_is_compared_in_both_16_bit_formats_and_refused_in_8() -> None:
    assert "QLoRA, 4 bits" in changes(candidates=["1x T4 @ 0.30"], precision="fp16")
    with pytest.raises(UsageError, match="QLoRA holds weights in 4 bits and computes in 16"):
        changes(method="qlora", precision="fp8")


def test_the_sentence_names_the_largest_change_that_fits() -> None:
    request = job_request(JOB | {"method": "inference"})
    found = what_changes(request)
    assert changes_sentence(request, found).startswith("1x H100: batch 8 changes the time most, to 0.1")
    reported = changes_json(request, found)
    assert [row["key"] for row in reported["changes"]][:2] == [None, "precision"]
    assert reported["changes"][1]["times"] == found[1].times(found[0])


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"candidates": []}, "requires cards at a price"),
        ({"model": None, "hours": 3, "tokens": None}, "requires a language model"),
        ({"utilisation": 0.4}, "omit utilisation"),
    ],
)
def test_what_cannot_be_compared_is_refused(more: dict[str, Any], text: str) -> None:
    values = {key: value for key, value in (JOB | more).items() if value not in (None, [])}
    with pytest.raises(UsageError, match=text):
        what_changes(job_request(values))
