"""All metrics: name, labels and meaning, by the conventions of Prometheus. docs/metrics.md is generated from it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class MetricKind(StrEnum):
    """The type of a metric in Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class MetricSpec(msgspec.Struct, frozen=True):
    """One metric. `about` is a sentence without its full stop."""

    name: str
    kind: MetricKind
    about: str
    labels: tuple[str, ...] = ()


_GAUGE, _COUNTER, _HISTOGRAM = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM
REACTION_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OTHER_GPU = "other"  # replaces names that are not in the catalogue, so that a host cannot create time series

# Prometheus has a label `job` of its own
_JOB_METRICS = (
    MetricSpec("gpuwatch_jobs", _GAUGE, "Jobs by state; queued jobs wait for an offer", ("state",)),
    MetricSpec(
        "gpuwatch_jobs_late", _GAUGE, "Open jobs expected to miss their deadline, by forecast or estimated hours"
    ),
    MetricSpec("gpuwatch_jobs_spent_usd", _GAUGE, "Cost of all jobs since the first one"),
    MetricSpec("gpuwatch_job_series_next_timestamp_seconds", _GAUGE, "Next time of a recurring job", ("series",)),
    MetricSpec("gpuwatch_job_series_missed", _GAUGE, "Times of it at which gpuwatch did not run", ("series",)),
    MetricSpec("gpuwatch_job_series_skipped", _GAUGE, "Times at which its previous run was still open", ("series",)),
    MetricSpec("gpuwatch_job_progress_ratio", _GAUGE, "Progress of a job on an instance, 0 to 1", ("job_name",)),
    MetricSpec("gpuwatch_job_spent_usd", _GAUGE, "Cost so far of a job on an instance", ("job_name",)),
    MetricSpec("gpuwatch_job_predicted_usd", _GAUGE, "Predicted total cost of the job", ("job_name",)),
    MetricSpec(
        "gpuwatch_job_end_timestamp_seconds", _GAUGE, "Predicted end of the job (middle forecast)", ("job_name",)
    ),
    MetricSpec("gpuwatch_job_last_seen_timestamp_seconds", _GAUGE, "Time of the runner's last answer", ("job_name",)),
    MetricSpec(
        "gpuwatch_job_checkpoint_timestamp_seconds",
        _GAUGE,
        "Time of the newest fetched checkpoint; before the first one, start of the run",
        ("job_name",),
    ),
    MetricSpec("gpuwatch_job_checkpoint_interval_seconds", _GAUGE, "Configured checkpoint interval", ("job_name",)),
    MetricSpec(
        "gpuwatch_job_stage",
        _GAUGE,
        "Whether a job with [prepare] is in this step; on an instance",
        ("job_name", "stage"),
    ),
    MetricSpec("gpuwatch_job_moves", _GAUGE, "Moves of the job to cheaper machines", ("job_name",)),
    MetricSpec("gpuwatch_job_moves_saving_usd", _GAUGE, "Saving of these moves, as expected by each", ("job_name",)),
    MetricSpec("gpuwatch_job_tokens_per_second", _GAUGE, "Speed last reported by the command", ("job_name",)),
    MetricSpec("gpuwatch_job_loss", _GAUGE, "Loss last reported by the command", ("job_name",)),
    MetricSpec("gpuwatch_job_gpu_utilization_ratio", _GAUGE, "Last measured GPU utilisation, 0 to 1", ("job_name",)),
)
_OWN_GPU = ("host", "gpu", "index")
_MACHINE_METRICS = (
    MetricSpec(
        "gpuwatch_own_machine_up", _GAUGE, "1 if the GPUs of a machine in [own_machines] could be read", ("host",)
    ),
    MetricSpec(
        "gpuwatch_own_machine_last_read_timestamp_seconds",
        _GAUGE,
        "Time of the newest reading; absent if it failed",
        ("host",),
    ),
    MetricSpec(
        "gpuwatch_own_gpu_utilization_ratio",
        _GAUGE,
        "GPU utilisation that its driver states, 0 to 1; absent if it states none, as with MIG",
        _OWN_GPU,
    ),
    MetricSpec("gpuwatch_own_gpu_memory_used_bytes", _GAUGE, "GPU memory in use", _OWN_GPU),
    MetricSpec("gpuwatch_own_gpu_memory_total_bytes", _GAUGE, "GPU memory in all", _OWN_GPU),
    MetricSpec(
        "gpuwatch_own_gpu_price_usd_hour",
        _GAUGE,
        "Its price as [own_machines] states it, else the market's lowest of that GPU; absent if unknown",
        _OWN_GPU,
    ),
)
METRICS = (
    MetricSpec("gpuwatch_build_info", _GAUGE, "Always 1; the version is a label", ("version",)),
    MetricSpec("gpuwatch_store_readable", _GAUGE, "1 if the database can be read; if 0, most metrics are absent"),
    MetricSpec(
        "gpuwatch_provider_healthy",
        _GAUGE,
        "1 if the provider answers, 0 if not (yet); absent if it is not polled any more",
        ("provider",),
    ),
    MetricSpec(
        "gpuwatch_provider_last_complete_poll_timestamp_seconds",
        _GAUGE,
        "Time of the newest complete answer; absent before the first",
        ("provider",),
    ),
    MetricSpec("gpuwatch_poll_age_seconds", _GAUGE, "Seconds since the newest complete answer", ("provider",)),
    MetricSpec("gpuwatch_searches_total", _COUNTER, "Recorded searches", ("provider", "lane")),
    MetricSpec("gpuwatch_rows_total", _COUNTER, "Rows returned by the provider", ("provider",)),
    MetricSpec("gpuwatch_rows_quota", _GAUGE, "Planned rows per UTC day; absent without a quota", ("provider",)),
    MetricSpec("gpuwatch_rows_left", _GAUGE, "Remaining rows of today's quota", ("provider",)),
    MetricSpec("gpuwatch_format_changes", _GAUGE, "Values and fields first seen after the baseline", ("provider",)),
    MetricSpec(
        "gpuwatch_offers", _GAUGE, "Live on-demand offers; 0 if there are none, absent if unknown", ("provider", "gpu")
    ),
    MetricSpec(
        "gpuwatch_best_price_usd_gpu_hour",
        _GAUGE,
        "Cheapest of these offers, USD per GPU-hour, commission included",
        ("provider", "gpu"),
    ),
    MetricSpec(
        "gpuwatch_watch_best_price_usd_gpu_hour",
        _GAUGE,
        "Cheapest current offer that meets all conditions of the watch except the limit; absent if unknown",
        ("watch",),
    ),
    MetricSpec("gpuwatch_watch_max_price_usd_gpu_hour", _GAUGE, "Limit of the watch", ("watch",)),
    MetricSpec(
        "gpuwatch_reaction_seconds",
        _HISTOGRAM,
        "Time from the decision to rent to the provider's confirmation of the order",
    ),
    MetricSpec("gpuwatch_launches", _GAUGE, "Launches by state, including dry runs", ("state",)),
    MetricSpec("gpuwatch_approvals_open", _GAUGE, "Quotes that await your approval"),
    MetricSpec("gpuwatch_burn_rate_usd_hour", _GAUGE, "Current spending rate, commission included"),
    MetricSpec("gpuwatch_spent_usd_total", _COUNTER, "Cost of launches so far, commission included", ("provider",)),
    MetricSpec(
        "gpuwatch_budget_used_ratio",
        _GAUGE,
        "Used share of a budget: max_usd_day, or WATCH/max_usd_day for a watch's own budget; 1 means exhausted",
        ("budget",),
    ),
    MetricSpec(
        "gpuwatch_budget_forecast_ratio",
        _GAUGE,
        "Share of a budget by the end of its UTC day or month, if what runs goes on and nothing new is rented",
        ("budget",),
    ),
    MetricSpec(
        "gpuwatch_forecasts", _GAUGE, "Forecasts by outcome: open, bought, missed, unknown", ("source", "outcome")
    ),
    MetricSpec(
        "gpuwatch_forecast_reached_ratio",
        _GAUGE,
        "Share of scored forecasts that met their price, by the forecast share of waits",
        ("source", "stated"),
    ),
    MetricSpec(
        "gpuwatch_forecast_saved_ratio",
        _GAUGE,
        "Saving of scored forecasts, compared with buying immediately or with a fixed limit at the median",
        ("source", "against"),
    ),
    *_JOB_METRICS,
    *_MACHINE_METRICS,
    MetricSpec("gpuwatch_alerts_total", _COUNTER, "Alerts since the first one", ("kind", "severity")),
    MetricSpec(
        "gpuwatch_outbox_oldest_seconds", _GAUGE, "Age of the oldest undelivered alert; 0 if none", ("channel",)
    ),
    MetricSpec(
        "gpuwatch_task_last_success_timestamp_seconds",
        _GAUGE,
        "Time of the last successful run of a daemon task, including the keeper; only with the daemon",
        ("task",),
    ),
    MetricSpec("gpuwatch_task_failing", _GAUGE, "1 if the task hangs or fails; only with the daemon", ("task",)),
)
