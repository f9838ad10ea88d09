"""A watch by job cost must describe the job completely, or gets an error that names what is missing."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.domain.plan.figures import FigureRange, exactly
from gpuwatch.domain.plan.job_hours import JobSpec

JOB = 'hours = 72\non = "4x A100"\nspeedup = { "4x H100" = 2.5 }\n'
WATCH = '[[watch]]\nname = "tune"\ngpu = ["A100 SXM 80GB", "H100"]\ngpu_count = { min = 1, max = 8 }\n'


def toml(job: str = JOB, watch: str = "", limit: str = "max_job_cost = 350\n") -> str:
    return f"{WATCH}{limit}{watch}[watch.job]\n{job}"


def spec(loaded: Any, job: str, **parts: str) -> JobSpec:
    found = loaded(toml(job, **parts)).watches[0].job
    assert isinstance(found, JobSpec)
    return found


def test_a_job_by_its_hours(loaded: Any) -> None:
    (watch,) = loaded(toml()).watches
    assert watch.max_job_cost_usd == Decimal(350)
    assert watch.job is not None
    assert watch.job.hours == exactly(72.0)
    assert watch.job.speedup[0].value == exactly(2.5)
    # 4 H100 take 28.8 h: 350 $ are 3.038 a GPU-hour, and no matching offer is more expensive
    assert Decimal("3.038") < watch.max_price_usd_gpu_hour < Decimal("3.039")


def test_a_job_by_its_tokens_in_text_and_numbers(loaded: Any) -> None:
    job = spec(loaded, 'tokens = "1B"\ntokens_per_s = { "H100" = "350-500", "A100" = 200 }\nload = "5m-7m"\n')
    assert job.tokens == 1e9
    assert [rate.value for rate in job.tokens_per_s] == [FigureRange(350, 500), exactly(200)]
    assert job.load_s == FigureRange(300, 420)


def test_a_model_says_what_memory_it_needs_and_how_much_arithmetic(loaded: Any) -> None:
    job = spec(loaded, 'tokens = 1e9\nmodel = "70B"\nmethod = "qlora"\nutilisation = "0.35-0.4"\n')
    assert 45 < job.memory_gb < 55
    assert job.flop == pytest.approx(4 * 70e9 * 1e9)
    assert spec(loaded, "tokens = 1e9\nmodel = 70e9\nutilisation = 0.4\nmemory_gb = 0\n").memory_gb == 0


@pytest.mark.parametrize(
    ("job", "key", "expected"),
    [
        ("load = '5m'\n", "job.hours", "required key is missing; expected: hours of work, or tokens"),
        (JOB + "tokens = 1e9\n", "job.tokens", "expected either hours or tokens, not both"),
        ("tokens = 1e9\n", "job.tokens_per_s", "required with tokens"),
        ("tokens = 1e9\nutilisation = 0.4\n", "job.tokens_per_s", "or set model and utilisation"),
        ("hours = 72\n", "job.on", 'such as on = "4x A100"'),
        (
            "tokens = 1e9\ntokens_per_s = { H100 = 5 }\nspeedup = { H100 = 2 }\n",
            "job.speedup",
            "only with hours and on",
        ),
        (JOB + "utilisation = 40\n", "job.utilisation", "a share of at most 1"),
        (
            'hours = 72\non = "4x B200"\n',
            "job",
            "cannot compute its length for any GPU of the watch: neither a speedup",
        ),
        ('hours = 72\non = "4x NoCard"\n', "job.on", 'expected GPUs such as "4x A100"'),
        ('hours = "72-60"\non = "A100"\n', "job.hours", "the lower figure first"),
        ("hours = 0\n", "job.hours", "expected a number above 0"),
        ("hours = true\n", "job.hours", 'expected a number, or text such as "70B"'),
        (JOB + 'load = "5"\n', "job.load", "expected a duration"),
        (JOB + 'load = "7m-5m"\n', "job.load", "the shorter duration first"),
        (JOB + 'model = "GPT-9"\n', "job.model", "expected a number of parameters"),
        (JOB + 'model = "70B"\nprecision = "int4"\n', "job", "cannot be trained"),
        (JOB + "speed = 2\n", "job.speed", "did you mean speedup?"),
        ('hours = 72\non = "A100"\nspeedup = 2\n', "job.speedup", "expected figures by GPU"),
    ],
)
def test_a_job_that_says_not_enough_is_a_fault(faults: Any, job: str, key: str, expected: str) -> None:
    found = faults(toml(job))
    assert any(f'watch "tune": {key}: ' in fault and expected in fault for fault in found), found


def test_interruptible_offers_need_to_know_how_often(faults: Any, loaded: Any) -> None:
    (fault,) = faults(toml(watch='spot = "any"\n'))
    assert "job.interruptions_per_day" in fault
    assert loaded(toml(JOB + "interruptions_per_day = 2\n", watch='spot = "any"\n')).watches


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"{WATCH}max_job_cost = 350\n", "job: required with max_job_cost"),
        (f"{WATCH}max_price = 2\n[watch.job]\n{JOB}", "job: expected only with max_job_cost"),
        (f"{WATCH}max_price = 2\nmax_job_cost = 350\n[watch.job]\n{JOB}", "either max_price or max_job_cost"),
    ],
)
def test_the_limit_and_the_job_go_together(faults: Any, text: str, key: str) -> None:
    assert any(key in fault for fault in faults(text))


@pytest.mark.parametrize("action", ["launch", "ask"])
def test_without_a_job_the_cost_is_of_the_longest_launch(loaded: Any, action: str) -> None:
    text = f'[[watch]]\nname = "one"\ngpu = ["H100", "A100"]\ngpu_count = 2\nmax_job_cost = 30\naction = "{action}"\n'
    (watch,) = loaded(f'{text}restock = true\n[watch.launch]\nmax_runtime = "10h"\n').watches
    assert watch.job == JobSpec(hours=exactly(10.0))
    assert Decimal("1.5") <= watch.max_price_usd_gpu_hour < Decimal("1.50001")


def test_one_kind_of_gpu_needs_no_reference(loaded: Any) -> None:
    text = '[[watch]]\nname = "one"\ngpu = "H100"\ngpu_count = 4\nmax_job_cost = 336\n[watch.job]\nhours = 24\n'
    (watch,) = loaded(text).watches
    assert Decimal("3.5") <= watch.max_price_usd_gpu_hour < Decimal("3.50001")


def test_a_job_may_come_from_the_environment(loaded: Any) -> None:
    job = '{"hours": "60-72", "on": "4x A100", "speedup": {"4x H100": 2.5}}'
    watch = f'[{{"name": "t", "gpu": "H100", "max_job_cost": 350, "job": {job}}}]'
    (found,) = loaded(env={"GPUWATCH_WATCH": watch}).watches
    assert found.job is not None
    assert found.job.hours == FigureRange(60, 72)


def test_a_runtime_too_short_for_the_job_is_reported(loaded: Any, caplog: pytest.LogCaptureFixture) -> None:
    launch = '[watch.launch]\nmax_runtime = "12h"\nbid = { max = 2 }\n'
    with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
        loaded(toml(JOB + "interruptions_per_day = 1\n" + launch, watch='action = "launch"\nspot = "any"\n'))
    assert (
        "launch.max_runtime = 12h ends every instance before its job is done, which takes at least 14.4 h"
        in caplog.text
    )


def test_a_runtime_too_short_for_some_of_the_offers_is_reported_with_what_leaves_them_out(
    loaded: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One A100 takes 288 h: its hourly price is low, and its job is as cheap as any, but it ends in the middle."""
    launch = '[watch.launch]\nmax_runtime = "80h"\n'
    with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
        loaded(toml(JOB + 'within = "80h"\n' + launch, watch='action = "launch"\n'))
        assert "max_runtime" not in caplog.text
        loaded(toml(JOB + launch, watch='action = "launch"\n'))
    assert "ends some instances before their job is done, which takes up to 288.0 h" in caplog.text
    assert 'job.within = "3d8h" to exclude those' in caplog.text
