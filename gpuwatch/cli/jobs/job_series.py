"""Recurring jobs on the terminal: `gpuwatch jobs series`, and what `show` and `cancel` print of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.options import json_option, stopping_settings_option
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.cli.terminal_tables import left, right, table
from gpuwatch.domain.setup.durations import format_duration

if TYPE_CHECKING:
    from gpuwatch.app.jobs.job_series import SeriesDetails
    from gpuwatch.domain.jobs.job_series import JobSeries
    from gpuwatch.settings import Settings

_SERIES_COLUMNS = (
    left("name", "name"),
    left("schedule", "schedule"),
    left("next run", "next_at"),
    left("last run", "last_planned_at", drop=1),
    left("job", "last_job_id", drop=2),
    right("missed", "missed", drop=3),
    right("skipped", "skipped", drop=3),
)
_RUN_COLUMNS = (
    left("job", "job_id"),
    left("planned", "planned_at"),
    left("state", "state"),
    left("ended", "ended_at", drop=1),
)


@click.command(cls=Command, examples=("gpuwatch jobs series", "gpuwatch jobs series --json"))
@json_option
@stopping_settings_option
def series(as_json: bool, settings: Settings) -> None:
    """List recurring jobs: their schedule, next and last run, and how many times were missed or skipped."""
    from gpuwatch.app.jobs.job_series import listed_series
    from gpuwatch.domain.jobs.job_series import series_view

    every = listed_series(settings)
    if as_json:
        json_out([series_view(one) for one in every])
    elif every:
        print_series_list(every, settings.timezone)
    else:
        note("no recurring jobs; submit a job file with schedule: gpuwatch jobs submit FILE")


def print_series_list(every: Sequence[JobSeries], timezone: str) -> None:
    """Print recurring jobs as a table."""
    from gpuwatch.domain.jobs.job_series import series_view

    table(_SERIES_COLUMNS, [series_view(one) for one in every], timezone=timezone)


def print_series(details: SeriesDetails, timezone: str) -> None:
    """Print a recurring job with its newest runs."""
    from gpuwatch.domain.jobs.job import job_view

    one = details.series
    spec = one.definition
    lines = (
        ("job", f"{one.name}, recurring"),
        ("schedule", f"{spec.schedule} ({timezone})"),
        ("within", format_duration(one.within.total_seconds())),
        ("catch up", "yes" if spec.catch_up else "no"),
        ("command", spec.command.partition("\n")[0] or "a script"),
        ("next run", local(one.next_at, timezone)),
        ("missed", str(one.missed)),
        ("skipped", str(one.skipped)),
    )
    for label, value in lines:
        click.echo(f"{label:<10} {value}")
    if details.runs:
        click.echo()
        table(_RUN_COLUMNS, [job_view(run) for run in details.runs], timezone=timezone)


def end(settings: Settings, name: str, as_json: bool) -> int:
    """End a recurring job and its open run; the exit code is that of `jobs cancel`."""
    from gpuwatch.app.jobs.job_series import end_series
    from gpuwatch.domain.jobs.job_series import series_view

    ended, is_confirmed = end_series(settings, name, note, actor=command_actor())
    if as_json:
        json_out(series_view(ended.series))
    else:
        click.echo(f"recurring job {ended.series.name} is ended")
        if ended.run is not None:
            click.echo(f"job {ended.run.job_id} ({ended.run.name}) is {ended.run.state.value}")
    return Exit.DONE if is_confirmed else Exit.CANNOT_TELL
