"""Metrics: names and labels that boards rely on, values from the store, and the text that Prometheus parses."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpuwatch.app.setup.metric_specs import METRICS
from gpuwatch.app.setup.metrics import MetricsReader, MetricValues, TaskHealth, exposition, write_textfile
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.storage.forecasts.forecast_rows import SqlForecasts
from gpuwatch.storage.setup.database import Database
from tests.domain.forecasts.test_price_forecasts import scored, stated
from tests.stored_jobs import a_running_job, a_sample, moved, relocated, sampled
from tests.web.served import settings_in

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
# promised to external clients; more may be added, none renamed
PROMISED = {
    "gpuwatch_build_info": ("version",),
    "gpuwatch_provider_healthy": ("provider",),
    "gpuwatch_provider_last_complete_poll_timestamp_seconds": ("provider",),
    "gpuwatch_searches_total": ("provider", "lane"),
    "gpuwatch_rows_total": ("provider",),
    "gpuwatch_offers": ("provider", "gpu"),
    "gpuwatch_best_price_usd_gpu_hour": ("provider", "gpu"),
    "gpuwatch_watch_best_price_usd_gpu_hour": ("watch",),
    "gpuwatch_watch_max_price_usd_gpu_hour": ("watch",),
    "gpuwatch_reaction_seconds": (),
    "gpuwatch_launches": ("state",),
    "gpuwatch_burn_rate_usd_hour": (),
    "gpuwatch_spent_usd_total": ("provider",),
    "gpuwatch_budget_used_ratio": ("budget",),
    "gpuwatch_budget_forecast_ratio": ("budget",),
    "gpuwatch_alerts_total": ("kind", "severity"),
    "gpuwatch_outbox_oldest_seconds": ("channel",),
    "gpuwatch_task_last_success_timestamp_seconds": ("task",),
}


def test_promised_names_and_labels_stay() -> None:
    assert PROMISED.items() <= {metric.name: metric.labels for metric in METRICS}.items()


def read_without_store(tmp_path: Path) -> MetricValues:
    file = tmp_path / "gpuwatch.toml"
    file.write_text(
        f'database_url = "sqlite:///{tmp_path}/none.db"\n'
        '[[watch]]\nname = "a \\"b\\\\"\ngpu = ["H100"]\nmax_price = 2.5\n'
    )
    tasks = TaskHealth(last_success={"deliver": NOON}, failing=frozenset({"hunt vastai"}))
    return MetricsReader().read(load_settings(str(file)), NOON, tasks)


def test_without_a_database_what_is_known_is_said_and_the_rest_is_absent(tmp_path: Path) -> None:
    found = {
        family.name: family
        for family in text_string_to_metric_families(exposition(read_without_store(tmp_path)).decode())
    }
    assert found["gpuwatch_store_readable"].samples[0].value == 0
    assert found["gpuwatch_watch_max_price_usd_gpu_hour"].samples[0].labels == {"watch": 'a "b\\'}
    assert {sample.labels["task"]: sample.value for sample in found["gpuwatch_task_failing"].samples} == {
        "deliver": 0, "hunt vastai": 1,
    }  # fmt: skip
    assert "gpuwatch_launches" not in found
    assert "gpuwatch_reaction_seconds" not in found


def test_a_histogram_counts_each_observation_in_all_buckets_above_it() -> None:
    values = MetricValues(values={"gpuwatch_store_readable": {(): 1.0}}, reaction_s=(0.05, 0.3, 90.0))
    text = exposition(values).decode()
    for line in (
        'bucket{le="0.1"} 1.0',
        'bucket{le="0.5"} 2.0',
        'bucket{le="60.0"} 2.0',
        'bucket{le="+Inf"} 3.0',
        "count 3.0",
    ):
        assert f"gpuwatch_reaction_seconds_{line}" in text


def test_a_textfile_is_replaced_whole_and_others_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.prom"
    path.write_text("old")
    write_textfile(path, read_without_store(tmp_path))
    assert path.read_text().startswith("# HELP gpuwatch_build_info")
    assert path.stat().st_mode & 0o777 == 0o644
    assert sorted(one.name for one in tmp_path.iterdir() if "prom" in one.name) == ["gpuwatch.prom"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_finds_nothing_to_mend(tmp_path: Path) -> None:
    text = exposition(read_without_store(tmp_path))
    subprocess.run(["promtool", "check", "metrics"], input=text, check=True, capture_output=True, timeout=240)


def test_what_the_daemon_scored_is_counted_by_outcome_and_by_share(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "gpuwatch.toml"
    file.write_text(f'database_url = "{database.url}"\n')
    ledger = SqlForecasts(database, {})
    for number in range(3):
        made = stated(2.0, None, after_h=3 * number, reached=((0.8, 2.5),))
        ledger.add(made)
        if number:
            ledger.save_score(made.forecast_id, scored(2.4 + number / 5))
    found = MetricsReader().read(load_settings(str(file)), NOON).values
    assert found["gpuwatch_forecasts"] == {
        ("advise", "open"): 1.0, ("advise", "bought"): 2.0, ("advise", "missed"): 0.0, ("advise", "unknown"): 0.0,
    }  # fmt: skip
    assert found["gpuwatch_forecast_reached_ratio"] == {("advise", "0.8"): 0.0}
    assert found["gpuwatch_forecast_saved_ratio"]["advise", "at_once"] == pytest.approx(1 - 5.4 / 6.0)


def test_jobs_are_counted_and_one_on_an_instance_says_how_it_does(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    job = a_running_job(settings, tmp_path)
    now = real_now()
    found = MetricsReader().read(settings, now).values
    assert {key[0] for key, count in found["gpuwatch_jobs"].items() if count} == {"running"}
    assert len(found["gpuwatch_jobs"]) == len(JobState)
    assert found["gpuwatch_jobs_late"] == {(): 0.0}
    assert found["gpuwatch_jobs_spent_usd"] == {(): 1.08}
    one = {name: values[(job.name,)] for name, values in found.items() if name.startswith("gpuwatch_job_")}
    began_s = one["gpuwatch_job_checkpoint_timestamp_seconds"]
    assert now.timestamp() - began_s == pytest.approx(1800, abs=900)
    assert one["gpuwatch_job_last_seen_timestamp_seconds"] == began_s + 1800
    assert one["gpuwatch_job_end_timestamp_seconds"] == began_s + 300 + 4200
    measured = ("progress_ratio", "tokens_per_second", "loss", "gpu_utilization_ratio", "predicted_usd")
    assert [one[f"gpuwatch_job_{name}"] for name in measured] == [0.25, 12_000.0, 1.25, 0.55, 3.3]
    assert one["gpuwatch_job_checkpoint_interval_seconds"] == 1200.0
    exposition(MetricValues(values=found))


def test_the_step_of_a_job_with_a_preparation_is_known(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    more = '[prepare]\ncommand = "true"\nlimit = { max_price = 0.1 }\n'
    names = [a_running_job(settings, tmp_path, name=name, more=text).name for name, text in (("a", more), ("b", ""))]
    found = MetricsReader().read(settings, real_now()).values
    assert found["gpuwatch_job_stage"] == {("a", "prepare"): 1.0, ("a", "main"): 0.0}
    assert {name for (name,) in found["gpuwatch_job_progress_ratio"]} == set(names)


def test_moves_to_cheaper_machines_are_counted_once_each(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    job = a_running_job(settings, tmp_path)
    found = MetricsReader().read(settings, real_now()).values
    assert found["gpuwatch_job_moves"] == found["gpuwatch_job_moves_saving_usd"] == {(job.name,): 0.0}
    relocated(settings, job, 3.5, times=2)
    relocated(settings, job, 1.5, run_number=2)
    found = MetricsReader().read(settings, real_now()).values
    assert found["gpuwatch_job_moves"] == {(job.name,): 2.0}
    assert found["gpuwatch_job_moves_saving_usd"] == {(job.name,): 5.0}


def test_a_job_whose_forecast_ends_after_its_deadline_is_late_and_one_that_is_over_is_not_named(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    job = a_running_job(settings, tmp_path)
    far = real_now() + timedelta(days=3)
    late = sampled(settings, job, a_sample(real_now(), 0.3, ends_at=(far, far), tokens_per_s=None))
    found = MetricsReader().read(settings, real_now()).values
    assert found["gpuwatch_jobs_late"] == {(): 1.0}
    assert "gpuwatch_job_tokens_per_second" not in found  # an unknown value is absent, never 0
    moved(settings, late, (JobState.FAILED,), real_now())
    found = MetricsReader().read(settings, real_now()).values
    assert (found["gpuwatch_jobs_late"], found["gpuwatch_jobs"]["failed",]) == ({(): 0.0}, 1.0)
    assert not [name for name in found if name.startswith("gpuwatch_job_")]
