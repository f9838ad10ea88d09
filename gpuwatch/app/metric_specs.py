"""Every metric: its name, labels and meaning, by Prometheus' conventions. docs/metrics.md is made of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class MetricKind(StrEnum):
    """How Prometheus reads it."""

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
OTHER_GPU = "other"  # in place of a name that is not in the catalogue: a host must not make time series

# Prometheus has a label `job` of its own
_JOB_METRICS = (
    MetricSpec("gpuwatch_jobs", _GAUGE, "Jobs by state; queued ones wait for their price", ("state",)),
    MetricSpec("gpuwatch_jobs_late", _GAUGE, "Open jobs that will miss their deadline, by forecast or estimated hours"),
    MetricSpec("gpuwatch_jobs_spent_usd", _GAUGE, "What the jobs that are stored have cost"),
    MetricSpec("gpuwatch_job_progress_ratio", _GAUGE, "Done part of a job on an instance, 0 to 1", ("job_name",)),
    MetricSpec("gpuwatch_job_spent_usd", _GAUGE, "What a job on an instance has cost so far", ("job_name",)),
    MetricSpec("gpuwatch_job_predicted_usd", _GAUGE, "What it will have cost at its end, by forecast", ("job_name",)),
    MetricSpec("gpuwatch_job_end_timestamp_seconds", _GAUGE, "When it will end, by the middle forecast", ("job_name",)),
    MetricSpec("gpuwatch_job_last_seen_timestamp_seconds", _GAUGE, "When its runner last answered", ("job_name",)),
    MetricSpec(
        "gpuwatch_job_checkpoint_timestamp_seconds",
        _GAUGE,
        "When its newest checkpoint was fetched; before the first one when its run began",
        ("job_name",),
    ),
    MetricSpec("gpuwatch_job_checkpoint_interval_seconds", _GAUGE, "How often one is to be fetched", ("job_name",)),
    MetricSpec("gpuwatch_job_tokens_per_second", _GAUGE, "Speed, as its command last said", ("job_name",)),
    MetricSpec("gpuwatch_job_loss", _GAUGE, "Loss, as its command last said", ("job_name",)),
    MetricSpec("gpuwatch_job_gpu_utilization_ratio", _GAUGE, "How busy its GPUs last were, 0 to 1", ("job_name",)),
)
METRICS = (
    MetricSpec("gpuwatch_build_info", _GAUGE, "Always 1; the version is its label", ("version",)),
    MetricSpec("gpuwatch_store_readable", _GAUGE, "1 if the database can be read; else most metrics are absent"),
    MetricSpec("gpuwatch_provider_healthy", _GAUGE, "1 if the provider answers, 0 if not or not yet", ("provider",)),
    MetricSpec(
        "gpuwatch_provider_last_complete_poll_timestamp_seconds",
        _GAUGE,
        "Time of the newest complete answer; absent before the first",
        ("provider",),
    ),
    MetricSpec("gpuwatch_poll_age_seconds", _GAUGE, "Seconds since the newest complete answer", ("provider",)),
    MetricSpec("gpuwatch_searches_total", _COUNTER, "Recorded searches", ("provider", "lane")),
    MetricSpec("gpuwatch_rows_total", _COUNTER, "Rows that the provider returned", ("provider",)),
    MetricSpec("gpuwatch_rows_quota", _GAUGE, "Rows per UTC day to plan with; absent without a quota", ("provider",)),
    MetricSpec("gpuwatch_rows_left", _GAUGE, "Rows of today's quota that are left", ("provider",)),
    MetricSpec(
        "gpuwatch_format_changes", _GAUGE, "Values and fields that the provider never sent before", ("provider",)
    ),
    MetricSpec("gpuwatch_offers", _GAUGE, "Live offers on demand, as last polled", ("provider", "gpu")),
    MetricSpec(
        "gpuwatch_best_price_usd_gpu_hour",
        _GAUGE,
        "The cheapest of them, USD per GPU-hour, commission included",
        ("provider", "gpu"),
    ),
    MetricSpec(
        "gpuwatch_watch_best_price_usd_gpu_hour",
        _GAUGE,
        "The cheapest offer that fits the watch but for its limit, as far as the history knows it",
        ("watch",),
    ),
    MetricSpec("gpuwatch_watch_max_price_usd_gpu_hour", _GAUGE, "The watch's limit", ("watch",)),
    MetricSpec(
        "gpuwatch_reaction_seconds",
        _HISTOGRAM,
        "From the decision to rent until the provider accepted the order",
    ),
    MetricSpec("gpuwatch_launches", _GAUGE, "Launches by state, those of dry runs included", ("state",)),
    MetricSpec("gpuwatch_approvals_open", _GAUGE, "Quotes that wait for your approval"),
    MetricSpec("gpuwatch_burn_rate_usd_hour", _GAUGE, "What is billed now, commission included"),
    MetricSpec("gpuwatch_spent_usd_total", _COUNTER, "What launches cost so far, commission included", ("provider",)),
    MetricSpec(
        "gpuwatch_budget_used_ratio",
        _GAUGE,
        "Used part of a budget: max_usd_day, or WATCH/max_usd_day of a watch's own; 1 is all of it",
        ("budget",),
    ),
    MetricSpec(
        "gpuwatch_forecasts", _GAUGE, "Forecasts by outcome: open, bought, missed, unknown", ("source", "outcome")
    ),
    MetricSpec(
        "gpuwatch_forecast_reached_ratio",
        _GAUGE,
        "Share of scored forecasts whose price, stated to be met by this share of waits, was met",
        ("source", "stated"),
    ),
    MetricSpec(
        "gpuwatch_forecast_saved_ratio",
        _GAUGE,
        "Share that scored forecasts saved, compared with buying at once or with a fixed limit at the median",
        ("source", "against"),
    ),
    *_JOB_METRICS,
    MetricSpec("gpuwatch_alerts_total", _COUNTER, "Alerts that are stored", ("kind", "severity")),
    MetricSpec(
        "gpuwatch_outbox_oldest_seconds", _GAUGE, "Age of the oldest alert that waits; 0 if none does", ("channel",)
    ),
    MetricSpec(
        "gpuwatch_task_last_success_timestamp_seconds",
        _GAUGE,
        "When a periodic task of the daemon last ended well; the keeper is one; only beside the daemon",
        ("task",),
    ),
    MetricSpec("gpuwatch_task_failing", _GAUGE, "1 if the task hangs or fails; only beside the daemon", ("task",)),
)
