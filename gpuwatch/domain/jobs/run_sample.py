"""The state of a run at one moment, as stored in the events of its job: for screens, charts and metrics. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gpuwatch.domain.jobs.job import ON_AN_INSTANCE, Job, JobEvent
from gpuwatch.domain.jobs.job_watch import latest_start
from gpuwatch.domain.jobs.run_progress import RunForecast, RunProgress
from gpuwatch.domain.jobs.run_status import RunnerStatus
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.json_view import JsonView, Moment
from gpuwatch.domain.market.money import dollars, price_text

_KEY = "sample"


class RunSample(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run at one moment; None: unknown at that time.

    Attributes:
        progress: 0 to 1.
        steps: done, and in all, as far as the command says them.
        gpu_memory_share: used share of the GPUs' memory, 0 to 1.
        usd_hour: the price of the instance, USD per hour.
        usd: predicted cost of the whole job, earlier runs included.
        waits_for: what a GPU under 70 % utilisation is probably waiting for.
    """

    at: datetime
    run_number: int
    progress: float | None = None
    steps: tuple[int, int] | None = None
    tokens_per_s: float | None = None
    loss: float | None = None
    gpu_percent: float | None = None
    gpu_memory_share: float | None = None
    usd_hour: float | None = None
    ends_at: tuple[datetime, datetime] | None = None
    usd: tuple[float, float] | None = None
    reports: int | None = None  # of progress, on which the forecast rests
    waits_for: str | None = None

    @property
    def end(self) -> datetime | None:
        """The middle of the forecast end."""
        return None if self.ends_at is None else self.ends_at[0] + (self.ends_at[1] - self.ends_at[0]) / 2

    @property
    def has_measurements(self) -> bool:
        """Whether anything was measured."""
        return (self.progress, self.tokens_per_s, self.loss, self.gpu_percent) != (None,) * 4

    @property
    def usd_per_million_tokens(self) -> float | None:
        """USD per million tokens at the current speed and price."""
        if not self.tokens_per_s or self.usd_hour is None:
            return None
        return self.usd_hour / 3600 / self.tokens_per_s * 1e6


def run_sample(
    begun: RunSample, progress: RunProgress, status: RunnerStatus, ahead: RunForecast | None, waits_for: str | None
) -> RunSample:
    """Build the sample of one polling round of a run.

    Args:
        begun: the sample so far: its time, run and price.
    """
    return msgspec.structs.replace(
        begun,
        progress=progress.fraction,
        steps=progress.steps,
        tokens_per_s=progress.tokens_per_s,
        loss=progress.loss,
        gpu_percent=status.gpu_percent,
        gpu_memory_share=status.gpu_memory_share,
        ends_at=None if ahead is None else ahead.ends_at,
        usd=None if ahead is None else (ahead.usd.low, ahead.usd.high),
        reports=None if ahead is None else ahead.reports,
        waits_for=waits_for,
    )


def sample_detail(sample: RunSample) -> dict[str, Any]:
    """The sample as stored in its event, which has the time and the run itself."""
    values = msgspec.to_builtins(sample)
    return {
        _KEY: {key: value for key, value in values.items() if value is not None and key not in {"at", "run_number"}}
    }


def sample_of(event: JobEvent) -> RunSample | None:
    """The sample in an event; None: it has none."""
    kept = event.detail.get(_KEY)
    if not isinstance(kept, Mapping):
        return None
    try:
        return msgspec.convert({**kept, "at": event.at, "run_number": event.run_number}, RunSample)
    except msgspec.ValidationError:
        return None


def samples_of(events: Sequence[JobEvent]) -> list[RunSample]:
    """The samples of a job, oldest first."""
    return [found for event in events if (found := sample_of(event)) is not None]


def without_older_samples(events: Sequence[JobEvent]) -> list[JobEvent]:
    """Events for display: of consecutive samples, only the newest."""
    following = [*events[1:], None]
    return [
        event
        for event, after in zip(events, following, strict=True)
        if sample_of(event) is None or after is None or sample_of(after) is None or after.run_number != event.run_number
    ]


class RunSampleView(JsonView, frozen=True, kw_only=True):
    """A sample as other programs see it."""

    at: Moment
    run_number: int
    progress: Annotated[float | None, Meta(description="From 0 to 1.")]
    steps: Annotated[tuple[int, int] | None, Meta(description="Done, and in all.")]
    tokens_per_s: float | None
    loss: float | None
    gpu_percent: float | None
    gpu_memory_share: Annotated[float | None, Meta(description="From 0 to 1.")]
    usd_per_million_tokens: float | None
    ends_at: tuple[Moment, Moment] | None
    usd: tuple[float, float] | None
    reports: int | None
    waits_for: str | None


def sample_view(sample: RunSample) -> RunSampleView:
    """A sample as other programs see it."""
    per_million = sample.usd_per_million_tokens
    return RunSampleView.of(
        sample,
        usd_per_million_tokens=None if per_million is None else round(per_million, 6),
        usd=None if sample.usd is None else tuple(round(one, 6) for one in sample.usd),
    )


def sample_facts(sample: RunSample, when: Callable[[datetime], str]) -> list[tuple[str, str]]:
    """The state of a run for display, label by label, as far as it is known.

    Args:
        when: formats a time for the reader's time zone.
    """
    rows: list[tuple[str, str | None]] = [
        ("done", None if sample.progress is None else f"{100 * sample.progress:.0f} % at {when(sample.at)}"),
        ("speed", _speed(sample)),
        ("ends", sample.ends_at and f"{when(sample.ends_at[0])} to {when(sample.ends_at[1])} ({_basis(sample)})"),
        ("costs", sample.usd and f"{dollars(sample.usd[0])} to {dollars(sample.usd[1])} at its end"),
        ("GPU use", _gpu_use(sample)),
        ("waits for", sample.waits_for),
    ]
    return [(label, text) for label, text in rows if text]


def _basis(sample: RunSample) -> str:
    if sample.reports is None:  # stored before forecasts stated it
        return "assumed ± 10 %"
    return f"from {count_text(sample.reports, 'report')} of progress"


def _speed(sample: RunSample) -> str:
    parts = []
    if sample.tokens_per_s is not None:
        parts.append(f"{sample.tokens_per_s:,.0f} tokens/s")
    if sample.usd_per_million_tokens is not None:
        parts.append(f"${price_text(sample.usd_per_million_tokens, least=3, most=3)} per million tokens")
    if sample.loss is not None:
        parts.append(f"loss {sample.loss:.4g}")
    return ", ".join(parts)


def _gpu_use(sample: RunSample) -> str | None:
    if sample.gpu_percent is None:
        return None
    share = sample.gpu_memory_share
    memory = "" if share is None else f", {100 * share:.0f} % of its memory used"
    return f"{sample.gpu_percent:.0f} %{memory}"


def is_late(job: Job, sample: RunSample | None, now: datetime) -> bool:
    """Whether an open job will miss its deadline, by the forecast of its run, else by its estimated hours.

    Args:
        sample: the newest one of its run; None: nothing was measured.
    """
    if job.deadline is None or job.is_over:
        return False
    ends_at = None if sample is None or sample.run_number != job.run_number else sample.end
    if job.state in ON_AN_INSTANCE and job.definition.hours is None:  # the duration is unknown
        return (ends_at or now) > job.deadline
    latest = latest_start(job)
    return ends_at > job.deadline if ends_at is not None else latest is not None and latest < now
