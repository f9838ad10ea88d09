"""`gpuwatch jobs plan`: which job would run when, and why, and `jobs simulate`: replay a queue over recorded prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import PastOptions, json_option, past_options, settings_option
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.jobs.job_watch import latest_start
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import dollars, per_gpu_hour, per_unit_hour
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.jobs.job_plan import PlannedStart
    from gpuwatch.app.jobs.job_simulate import PolicyResult
    from gpuwatch.settings import Settings


def _saved_interval(result: PolicyResult) -> str | None:
    if result.saved_low is None or result.saved_high is None:
        return None
    return f"{100 * result.saved_low:.1f} to {100 * result.saved_high:.1f}"


_TITLES = {
    "queue": "this queue",
    "cheapest_now": "cheapest now",
    "list_price": "at once, list price",
}
_START_COLUMNS = (
    left("job", lambda start: start.queued.job.name),
    right("prio", lambda start: start.queued.job.priority, drop=3),
    left("latest start", lambda start: latest_start(start.queued.job), drop=2),
    right("limit", lambda start: _unit_price(start, start.limit_usd_gpu_hour)),
    right("cheapest", lambda start: _unit_price(start, start.cheapest_usd_gpu_hour), drop=1),
    right("saves", lambda job: _amount(job.saving_usd), drop=4),
    right("costs", lambda job: _amount(job.predicted_usd), drop=1),
    text("when", "when"),
)


def _gpu_price(usd: float | None, decimals: int = 2) -> str | None:
    return None if usd is None else per_gpu_hour(usd, least=decimals, most=decimals)


def _unit_price(start: PlannedStart, usd: float | None) -> str | None:
    gpu_count = start.queued.job.definition.resources.gpu_count_max
    return None if usd is None else per_unit_hour(usd, gpu_count, least=2, most=2)


def _amount(usd: float | None) -> str | None:
    return None if usd is None else dollars(usd)


_POLICY_COLUMNS = (
    left("policy", lambda result: _TITLES[result.policy]),
    right("cost", lambda result: _amount(result.usd)),
    right("GPU price", lambda result: _gpu_price(result.usd_gpu_hour, 4), drop=1),
    right("queue saves", lambda result: None if result.saved is None else f"{100 * result.saved:.1f} %"),
    right("95 %", _saved_interval, drop=2),
    right("late", "late", ","),
    right("skipped", lambda result: result.skipped or None, ",", drop=2, optional=True),
    right("moves", lambda result: result.moves or None, ",", drop=2, optional=True),
    right("moves save", lambda result: _amount(result.moves_saved_usd) if result.moves else None, optional=True),
    right("over limit", "over_limit", ",", drop=3),
    right("wait h", "median_wait_h", ".0f", drop=2),
)


@click.command(cls=Command, examples=("gpuwatch jobs plan", "gpuwatch jobs plan --json"))
@json_option
@settings_option
def plan(as_json: bool, settings: Settings) -> None:
    """Show which job would run when and why: order, current limit, cheapest offer, and small jobs that could share one.

    Sends no requests: offers come from the newest poll in the store. Prices are USD per GPU-hour.
    """
    from gpuwatch.app.jobs.job_plan import job_plan_json, plan_jobs
    from gpuwatch.cli.jobs.jobs import steps_text
    from gpuwatch.domain.market.money import dollars

    job_plan = plan_jobs(settings)
    if as_json:
        json_out(job_plan_json(job_plan))
        return
    if not job_plan.starts:
        note("no job is queued")
        return
    table(_START_COLUMNS, job_plan.starts, timezone=settings.timezone)
    for start in job_plan.starts:
        if start.spot_first is not None:
            click.echo(f"{start.queued.job.name}: {start.spot_first.text(ZoneInfo(settings.timezone))}")
    for start in job_plan.starts:
        if start.queued.job.definition.then is not None:
            click.echo(f"{start.queued.job.name}: {steps_text(start.most_usd)}")
    for merge in job_plan.merges:
        names = ", ".join(job.name for job in merge.jobs)
        saved = f"saves {dollars(merge.saving_usd)} of {dollars(merge.separate_usd)}"
        click.echo(f"sequentially on one instance: {names}: {saved}")
    if job_plan.dry_run:
        note("dry_run = true: nothing is rented")


@click.command(
    cls=Command,
    examples=(
        "gpuwatch jobs simulate --since 30d",
        "gpuwatch jobs simulate jobs/qlora-8b.toml --since 30d",
        "gpuwatch jobs simulate --jobs 1000 --data prices.csv.gz",
    ),
)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--jobs", "made_up", type=click.IntRange(1, 100_000), default=None, help="Use N synthetic jobs instead.")
@click.option("--seed", type=int, default=1, show_default=True, help="Random seed of --jobs.")
@click.option(
    "--slots", type=click.IntRange(1, 100_000), default=None, help="Jobs that run in parallel. Default: unlimited."
)
@past_options("30d", default_spot="no")
@json_option
@settings_option
def simulate(
    files: tuple[Path, ...],
    made_up: int | None,
    seed: int,
    slots: int | None,
    past: PastOptions,
    as_json: bool,
    settings: Settings,
) -> int:
    """Replay a queue over recorded prices; compare with renting immediately and with the list price.

    Each open job, or each FILE, is submitted once per day of the period, with the time left to its deadline; a
    recurring one at the times of its schedule.
    --jobs generates jobs of 1 to 24 hours on the GPUs with the most prices; deadlines are 2 to 6 times their hours.

    Exit codes: 0 done, 2 usage, 3 there are no prices.
    """
    from gpuwatch.app.jobs.job_simulate import ASSUMED, SimulationRequest, simulation_json
    from gpuwatch.app.jobs.job_simulate import simulate as run

    if files and made_up is not None:
        raise UsageError("use either job files or --jobs")
    request = SimulationRequest(files=files, made_up=made_up, seed=seed, slots=slots, **past.request(real_now()))
    simulation = run(settings, request)
    if as_json:
        json_out(simulation_json(simulation))
        return Exit.DONE if simulation.left_out < simulation.jobs else Exit.CANNOT_TELL
    if not simulation.jobs:
        click.echo(f"nothing to replay: no price in {simulation.source} matches these jobs")
        return Exit.CANNOT_TELL
    parallel = "unlimited in parallel" if slots is None else f"{slots} in parallel"
    span = f"{local(simulation.since, settings.timezone)} to {local(simulation.until, settings.timezone)}"
    click.echo(f"{count_text(simulation.jobs, 'job')}, {parallel}, {span} ({simulation.source})")
    excluded = f"excluded: {simulation.left_out:,} without known prices"
    if simulation.missed:
        excluded += f"; missed times of recurring jobs: {simulation.missed:,}"
    click.echo(f"compared: {simulation.compared:,} that every policy ran; {excluded}")
    table(_POLICY_COLUMNS, simulation.policies)
    note("assumed: " + "; ".join(ASSUMED))
    return Exit.DONE if simulation.left_out < simulation.jobs else Exit.CANNOT_TELL
