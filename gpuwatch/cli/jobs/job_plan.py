"""`gpuwatch job plan`: which job would run when, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Command
from gpuwatch.cli.options import json_option, settings_option
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.cli.terminal_tables import left, right, table, text

if TYPE_CHECKING:
    from gpuwatch.app.jobs.job_plan import PlannedStart
    from gpuwatch.settings import Settings

_START_COLUMNS = (
    left("job"),
    right("prio", drop=3),
    left("latest start", drop=2),
    right("limit $"),
    right("cheapest $", drop=1),
    right("saves $", drop=4),
    right("costs $", drop=1),
    text("when"),
)


@click.command(cls=Command, examples=("gpuwatch job plan", "gpuwatch job plan --json"))
@json_option
@settings_option
def plan(as_json: bool, settings: Settings) -> None:
    """Show which job would run when and why: order, current limit, cheapest offer, and small jobs that could share one.

    Sends no requests: offers come from the newest poll in the store. Prices are USD per GPU-hour.
    """
    from gpuwatch.app.jobs.job_plan import job_plan_json, plan_jobs
    from gpuwatch.domain.market.money import dollars

    job_plan = plan_jobs(settings)
    if as_json:
        json_out(job_plan_json(job_plan))
        return
    if not job_plan.starts:
        note("no job is queued")
        return
    table(_START_COLUMNS, [_start_row(start, settings.timezone) for start in job_plan.starts])
    for merge in job_plan.merges:
        names = ", ".join(job.name for job in merge.jobs)
        saved = f"saves {dollars(merge.saving_usd)} of {dollars(merge.separate_usd)}"
        click.echo(f"sequentially on one instance: {names}: {saved}")
    if job_plan.dry_run:
        note("dry_run = true: nothing is rented")


def _start_row(start: PlannedStart, timezone: str) -> tuple[str, ...]:
    from gpuwatch.domain.jobs.queue import latest_start

    job = start.queued.job
    return (
        job.name,
        str(job.priority),
        local(latest_start(job), timezone),
        f"{start.limit_usd_gpu_hour:.2f}",
        "–" if start.cheapest_usd_gpu_hour is None else f"{start.cheapest_usd_gpu_hour:.2f}",
        f"{start.saving_usd:.2f}",
        f"{start.predicted_usd:.2f}",
        start.when,
    )
