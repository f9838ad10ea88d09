"""The value of every metric, read from the store, and all of them in Prometheus' text format.

Reading needs neither a web server nor Prometheus' library; the text is for `/metrics` and the textfile collector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuwatch import __version__
from gpuwatch.app.launches.approvals import open_approvals
from gpuwatch.app.launches.budget_uses import machines_at_once, month_start, uses_of_budgets
from gpuwatch.app.market.provider_status import ProviderStatus, provider_statuses
from gpuwatch.app.setup.market_metrics import (
    BEST_PRICE,
    Labels,
    Values,
    checked_values,
    is_answering,
    market_values,
    read_market,
)
from gpuwatch.app.setup.metric_specs import METRICS, OTHER_GPU, REACTION_BUCKETS_S, MetricKind, MetricSpec
from gpuwatch.app.watches.current_limits import limits_in_force
from gpuwatch.atomic_file import atomic_file
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.forecasts.price_forecasts import ForecastSource, Scored, forecast_record
from gpuwatch.domain.jobs.job import Job, JobRun, JobState
from gpuwatch.domain.jobs.job_definition import JobStage
from gpuwatch.domain.jobs.run_sample import RunSample, is_late, sample_of
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.money.launch_costs import burn_rate, cost_microusd
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.plan.machines.machine_figures import machine_prices, machine_values
from gpuwatch.errors import StoreError, UsageError
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.forecasts.forecast_rows import SqlForecasts
from gpuwatch.storage.history.pruned_totals import alerts_stored
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository
from gpuwatch.storage.launches.launch_totals import SqlLaunchTotals
from gpuwatch.storage.setup.store_stats import (
    newest_complete_polls,
    reaction_times_s,
    rows_returned,
    searches_recorded,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from gpuwatch.app.watches.check import MarketCheck
    from gpuwatch.domain.plan.machines.machine_use import MachineReading
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database


class TaskHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the tasks of the daemon's own process."""

    last_success: Mapping[str, datetime] = {}
    failing: frozenset[str] = frozenset()
    machines: Sequence[MachineReading] = ()  # the newest readings of the owner's own machines


class MetricValues(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment.

    Attributes:
        values: metric → values of its labels, in their order → value.
        reaction_s: observations of the histogram.
    """

    values: Values
    reaction_s: Sequence[float] = ()


class MetricsReader:
    """Reads all metrics of one installation."""

    def read(self, settings: Settings, now: datetime, tasks: TaskHealth | None = None) -> MetricValues:
        """The values of all metrics. Never raises StoreError: `gpuwatch_store_readable` shows it."""
        limits = limits_in_force(settings, settings.watches).watches
        values: Values = {
            "gpuwatch_build_info": {(__version__,): 1.0},
            "gpuwatch_watch_max_price_usd_gpu_hour": {
                (limit.name,): float(limit.max_price_usd_gpu_hour) for limit in limits if not limit.unlimited
            },
            **_task_values(tasks),
        }
        machines = () if tasks is None else tasks.machines
        values |= machine_values(machines, OTHER_GPU)
        try:
            with open_store_read_only(settings) as store:
                reaction_s = reaction_times_s(store)
                stored = {
                    **self._totals(store),
                    **_launch_values(settings, SqlLaunchTotals(store), now),
                    **_outbox_values(settings, store, now),
                    **_forecast_values(SqlForecasts(store, {}).scored()),
                    **job_values(store, now),
                }
                polled = newest_complete_polls(store, settings.providers)
                statuses = provider_statuses(settings, only_enabled=True, with_polling=False)
                complete = {status.provider: _complete_at(status, polled) for status in statuses}
                answering = {
                    status.provider
                    for status in statuses
                    if is_answering(settings, store, status, complete[status.provider], now)
                }
                market = read_market(store, statuses, answering, now)
            stored |= _provider_values(statuses, complete, answering, now) | market_values(
                settings, market, limits, now
            )
            own = {machine.host: machine.usd_gpu_hour for machine in settings.own_machines.machines}
            stored |= machine_prices(machines, own, stored[BEST_PRICE], OTHER_GPU)
            stored["gpuwatch_approvals_open"] = {(): float(len(open_approvals(settings, now)))}
        except StoreError:
            return MetricValues(values=values | {"gpuwatch_store_readable": {(): 0.0}})
        return MetricValues(values=values | stored | {"gpuwatch_store_readable": {(): 1.0}}, reaction_s=reaction_s)

    def _totals(self, store: Database) -> Values:
        return {
            "gpuwatch_searches_total": {key: float(count) for key, count in searches_recorded(store).items()},
            "gpuwatch_rows_total": {(name,): float(rows) for name, rows in rows_returned(store).items()},
            "gpuwatch_alerts_total": {key: float(count) for key, count in alerts_stored(store).items()},
        }


def with_check(settings: Settings, stored: MetricValues, check: MarketCheck) -> MetricValues:
    """The results of one check, which replace those of the store, because they may not have been stored.

    Ages are left out, because they would not grow in a file.
    """
    at_s = check.at.timestamp()
    seen: Values = {
        "gpuwatch_provider_healthy": {
            (provider.report.provider,): float(provider.report.ok) for provider in check.providers
        },
        "gpuwatch_provider_last_complete_poll_timestamp_seconds": {
            (provider.report.provider,): at_s for provider in check.providers if provider.report.ok
        },
    }
    merged = {name: stored.values.get(name, {}) | values for name, values in seen.items()}
    values = stored.values | merged | checked_values(settings, check, stored.values)
    values.pop("gpuwatch_poll_age_seconds", None)
    return msgspec.structs.replace(stored, values=values)


def _task_values(tasks: TaskHealth | None) -> Values:
    if tasks is None:
        return {}
    tasks_ = {*tasks.last_success, *tasks.failing}
    return {
        "gpuwatch_task_last_success_timestamp_seconds": {
            (task,): at.timestamp() for task, at in tasks.last_success.items()
        },
        "gpuwatch_task_failing": {(task,): float(task in tasks.failing) for task in tasks_},
    }


def _complete_at(status: ProviderStatus, polled: Mapping[str, datetime]) -> datetime | None:
    return max((at for at in (status.health.complete_at, polled.get(status.provider)) if at), default=None)


def _provider_values(
    statuses: Iterable[ProviderStatus],
    complete: Mapping[str, datetime | None],
    answering: Collection[str],
    now: datetime,
) -> Values:
    values: Values = {
        "gpuwatch_provider_healthy": {},
        "gpuwatch_provider_last_complete_poll_timestamp_seconds": {},
        "gpuwatch_poll_age_seconds": {},
        "gpuwatch_rows_quota": {},
        "gpuwatch_rows_left": {},
        "gpuwatch_format_changes": {},
    }
    for status in statuses:
        name, complete_at = (status.provider,), complete[status.provider]
        is_blind = status.health.blind_since is not None or status.empty is not None or complete_at is None
        if is_blind or status.provider in answering or status.plan.spent:  # else nobody polls, so nobody knows
            values["gpuwatch_provider_healthy"][name] = float(not is_blind)
        values["gpuwatch_format_changes"][name] = float(len(status.drift))
        if complete_at is not None:
            complete_s = complete_at.timestamp()
            values["gpuwatch_provider_last_complete_poll_timestamp_seconds"][name] = complete_s
            values["gpuwatch_poll_age_seconds"][name] = max(now.timestamp() - complete_s, 0.0)
        if status.plan.rows_left is not None:
            values["gpuwatch_rows_quota"][name] = float(status.plan.rows_per_day)
            values["gpuwatch_rows_left"][name] = float(status.plan.rows_left)
    return values


def _launch_values(settings: Settings, totals: SqlLaunchTotals, now: datetime) -> Values:
    launches, counts = totals.billed_since(month_start(now)), totals.counts()
    spent = Counter[str](dict.fromkeys(settings.providers, 0))
    spent.update(totals.spent_on_ended(now))
    for launch in launches:
        if not launch.is_over:
            spent[launch.provider] += cost_microusd(launch, now)
    budgets: dict[Labels, float] = {}
    forecasts: dict[Labels, float] = {}
    for use in uses_of_budgets(settings, launches, {}, None, now):
        label = (use.limit_name if use.watch is None else f"{use.watch}/{use.limit_name}",)
        for values, amount in ((budgets, use.used), (forecasts, use.forecast_running)):
            percent = use.percent(amount)
            if percent is not None:
                values[label] = percent / 100
    if settings.budget.max_instances:
        budgets["max_instances",] = machines_at_once(launches) / settings.budget.max_instances
    return {
        "gpuwatch_launches": {(state.value,): float(counts.get(state, 0)) for state in LaunchState},
        "gpuwatch_burn_rate_usd_hour": {(): burn_rate(launches, now).effective / MICRO},
        "gpuwatch_spent_usd_total": {(name,): microusd / MICRO for name, microusd in spent.items()},
        "gpuwatch_budget_used_ratio": budgets,
        "gpuwatch_budget_forecast_ratio": forecasts,
    }


def _outbox_values(settings: Settings, store: Database, now: datetime) -> Values:
    oldest: dict[Labels, float] = {(name,): 0.0 for name in settings.channels}
    for pending in Outbox(store).pending():
        if (pending.channel,) in oldest:
            oldest[pending.channel,] = max((now - pending.oldest_at).total_seconds(), 0.0)
    return {"gpuwatch_outbox_oldest_seconds": oldest}


def _forecast_values(forecasts: Iterable[Scored]) -> Values:
    """The scores that the daemon has stored; reading metrics scores nothing."""
    counted: dict[Labels, float] = {}
    reached: dict[Labels, float] = {}
    saved: dict[Labels, float] = {}
    by_source: dict[ForecastSource, list[Scored]] = {}
    for row in forecasts:
        by_source.setdefault(row[0].source, []).append(row)
    for source, own in by_source.items():
        record = forecast_record(own)
        for outcome in ("open", "bought", "missed", "unknown"):
            counted[source.value, outcome] = float(getattr(record, outcome))
        for bin_ in record.calibration:
            reached[source.value, f"{bin_.stated:g}"] = bin_.reached / bin_.counted
        for against, compared in (("at_once", record.at_once), ("fixed_median", record.median)):
            if compared.saved is not None:
                saved[source.value, against] = compared.saved
    return {
        "gpuwatch_forecasts": counted,
        "gpuwatch_forecast_reached_ratio": reached,
        "gpuwatch_forecast_saved_ratio": saved,
    }


# --- jobs -------------------------------------------------------------------------------------------------------------

_KINDS = ("changed", "checkpoint")


def job_values(store: Database, now: datetime) -> Values:
    """Metric → labels → value. For a single job only while its instance runs. Raises StoreError."""
    repository = SqlJobRepository(store)
    counts = repository.counts()
    on_instance = repository.jobs_on_instance()
    newest = repository.newest_events([job.job_id for job in on_instance], _KINDS)
    samples = {event.job_id: sample for event in newest if (sample := sample_of(event)) is not None}
    checkpoints = {event.job_id: event.at for event in newest if event.kind == "checkpoint"}
    runs = {run.job_id: run for run in repository.runs_on_an_instance()}
    values: Values = {
        "gpuwatch_jobs": {(state.value,): float(counts.get(state.value, 0)) for state in JobState},
        "gpuwatch_jobs_spent_usd": {(): repository.spent_microusd() / MICRO},
        "gpuwatch_jobs_late": {
            (): float(sum(is_late(job, samples.get(job.job_id), now) for job in repository.open_with_deadline()))
        },
    }
    for series in SqlSeriesRepository(store).every():
        labels = (series.name,)
        values.setdefault("gpuwatch_job_series_next_timestamp_seconds", {})[labels] = series.next_at.timestamp()
        values.setdefault("gpuwatch_job_series_missed", {})[labels] = float(series.missed)
        values.setdefault("gpuwatch_job_series_skipped", {})[labels] = float(series.skipped)
    moves = repository.moves([job.job_id for job in on_instance])
    for job in on_instance:
        if job.definition.stage is not None:
            stages = values.setdefault("gpuwatch_job_stage", {})
            for stage in JobStage:
                stages[job.name, stage.value] = float(job.definition.stage is stage)
        saved = [move.saving_usd for (job_id, _), move in moves.items() if job_id == job.job_id]
        values.setdefault("gpuwatch_job_moves", {})[(job.name,)] = float(len(saved))
        values.setdefault("gpuwatch_job_moves_saving_usd", {})[(job.name,)] = sum(saved, 0.0)
        job_values_ = _values_of_job(job, runs.get(job.job_id), samples.get(job.job_id), checkpoints.get(job.job_id))
        for name, value in job_values_.items():
            values.setdefault(name, {})[(job.name,)] = value
    return values


def _values_of_job(
    job: Job, run: JobRun | None, sample: RunSample | None, checkpoint_at: datetime | None
) -> dict[str, float]:
    """The metrics of one job."""
    values: dict[str, float | None] = {
        "gpuwatch_job_progress_ratio": job.progress,
        "gpuwatch_job_spent_usd": job.spent_microusd / MICRO,
        "gpuwatch_job_predicted_usd": None if job.predicted_microusd is None else job.predicted_microusd / MICRO,
    }
    if run is not None and run.last_seen_at is not None:
        values["gpuwatch_job_last_seen_timestamp_seconds"] = run.last_seen_at.timestamp()
    spec = job.definition.checkpoint
    if spec is not None and run is not None and run.started_at is not None:
        newest = max(run.started_at, checkpoint_at or run.started_at)
        values["gpuwatch_job_checkpoint_timestamp_seconds"] = newest.timestamp()
        values["gpuwatch_job_checkpoint_interval_seconds"] = spec.every_s
    if sample is not None and sample.run_number == job.run_number:
        values |= {
            "gpuwatch_job_tokens_per_second": sample.tokens_per_s,
            "gpuwatch_job_loss": sample.loss,
            "gpuwatch_job_gpu_utilization_ratio": None if sample.gpu_percent is None else sample.gpu_percent / 100,
            "gpuwatch_job_end_timestamp_seconds": None if sample.end is None else sample.end.timestamp(),
        }
    return {name: value for name, value in values.items() if value is not None}


# --- the text ---------------------------------------------------------------------------------------------------------

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(values: MetricValues) -> bytes:
    """The metrics as text."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - for a scrape

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(values))
    return generate_latest(registry)


def write_textfile(path: Path, values: MetricValues) -> None:
    """Replace a file atomically: a scrape sees the old one or the new one. Raises UsageError: it cannot be written."""
    text = exposition(values)
    try:
        with atomic_file(path) as part:
            part.write_bytes(text)
            part.chmod(0o644)  # the exporter may run as another user
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


class _Collected:
    """A collector in the sense of the library: the values are already read."""

    def __init__(self, values: MetricValues) -> None:
        self._found = values

    def collect(self) -> Iterator[Metric]:
        """Every metric that has a value."""
        for spec in METRICS:
            if spec.kind is MetricKind.HISTOGRAM:
                if self._found.values.get("gpuwatch_store_readable", {}).get((), 0.0):
                    yield _histogram(spec, self._found.reaction_s)
            elif spec.name in self._found.values:
                yield self._family(spec)

    def _family(self, spec: MetricSpec) -> Metric:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        kind = CounterMetricFamily if spec.kind is MetricKind.COUNTER else GaugeMetricFamily
        family = kind(spec.name, f"{spec.about}.", labels=spec.labels)
        for labels, value in sorted(self._found.values[spec.name].items()):
            family.add_metric(labels, value)
        return family


def _histogram(spec: MetricSpec, observed: Sequence[float]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415

    buckets = [(str(edge), float(sum(value_s <= edge for value_s in observed))) for edge in REACTION_BUCKETS_S]
    family = HistogramMetricFamily(spec.name, f"{spec.about}.", labels=spec.labels)
    family.add_metric((), [*buckets, ("+Inf", float(len(observed)))], sum(observed))
    return family
