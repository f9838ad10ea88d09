"""`gpuwatch jobs`: queue work that runs when an offer meets its limit, follow it, fetch its results, hand it over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.options import (
    completes,
    group_option,
    json_option,
    provider_option,
    settings_option,
    stopping_settings_option,
)
from gpuwatch.cli.output import displayable, json_out, local, note
from gpuwatch.cli.terminal_tables import left, right, table, text
from gpuwatch.domain.market.money import dollars, per_hour
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from gpuwatch.app.jobs.jobs import JobDetails
    from gpuwatch.domain.jobs.job import JobEvent, JobState
    from gpuwatch.domain.jobs.job_definition import JobStage, PrepareSpec
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings


def _state_text(state: JobState, stage: JobStage | None) -> str:
    from gpuwatch.domain.jobs.job import state_text

    return state_text(state, stage)


_STATES = (
    *("queued", "renting", "preparing", "running", "fetching", "done"),
    *("paused", "preempted", "failed", "cancelled"),
)
_JOB_COLUMNS = (
    left("job", "job_id"),
    left("name", "name"),
    left("state", lambda job: _state_text(job.state, job.stage)),
    right("prio", "priority", drop=3),
    left("deadline", "deadline", drop=1),
    right("done %", lambda job: None if job.progress is None else 100 * job.progress, ".0f", drop=2),
    right("spent", lambda job: dollars(job.spent_usd)),
    right("of", lambda job: None if job.predicted_usd is None else dollars(job.predicted_usd), drop=2),
    left("launch", "launch_id", drop=3),
    text("reason", "reason", drop=4),
)
_EVENT_COLUMNS = (
    left("at", "at"),
    left("event", "kind"),
    right("run", "run_number", drop=1),
    text("detail", lambda event: _detail_text(event) or None),
)
_OUTPUT_COLUMNS = (
    left("file", lambda file: file.get("path")),
    right("bytes", lambda file: file.get("bytes", file.get("size"))),
    right("run", lambda file: file["run_number"], drop=1),
    left("sha256", lambda file: str(file.get("sha256", "–"))[:12], drop=2),
)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch jobs submit jobs/qlora-8b.toml",
        "gpuwatch jobs submit jobs/qlora-8b.toml --sweep lr=1e-4,2e-4",
    ),
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--sweep", "sweeps", metavar="KEY=A,B", multiple=True, help="One job for each value; may be repeated.")
@json_option
@settings_option
def submit(files: tuple[Path, ...], sweeps: tuple[str, ...], as_json: bool, settings: Settings) -> None:
    """Queue the jobs of these files. The daemon (`gpuwatch run`) rents instances and runs them.

    A file with `schedule` becomes a recurring job: each time of its schedule queues a run. Submit a changed file again.
    """
    from gpuwatch.app.jobs.job_files import doubtful_results, left_out_inputs, missing_inputs
    from gpuwatch.app.jobs.jobs import submit_jobs, unreachable_deadlines
    from gpuwatch.domain.jobs.job import job_view
    from gpuwatch.domain.jobs.job_series import series_view

    submitted = submit_jobs(settings, files, sweeps)
    jobs = submitted.every
    for name, path in missing_inputs(jobs):
        note(f"{name}: input {path} does not exist or cannot be read; it must be there before the job rents")
    for name, path_there in left_out_inputs(jobs):
        note(f"{name}: input {path_there} has no content to send (a pipe, socket or device)")
    for name, pattern, near in doubtful_results(jobs):
        note(f"{name}: results {pattern}: its command does not name that, but {near}; if nothing matches, it fails")
    for name, hours in unreachable_deadlines(jobs):
        note(f"{name}: {hours:g} hours of work do not fit before its deadline, which ends its run unfinished")
    if as_json:
        json_out([*map(job_view, submitted.jobs), *map(series_view, submitted.series)])
        return
    for job in submitted.jobs:
        steps = f": it {steps_text(job.definition.whole.limit.max_usd)}" if job.definition.then is not None else ""
        click.echo(f"job {job.job_id} ({job.name}) is queued{steps}")
    for series in submitted.series:
        click.echo(f"recurring job {series.name}: next run {local(series.next_at, settings.timezone)}")
    if settings.dry_run:
        note("dry_run = true: nothing is rented until it is set to false")


@click.command(cls=Command, examples=("gpuwatch jobs list", "gpuwatch jobs list --state queued --json"))
@click.option("--all", "show_all", is_flag=True, help="Include jobs that ended more than a week ago.")
@click.option("--state", type=click.Choice(_STATES), help="Only jobs in this state.")
@group_option("Only jobs of this group.")
@json_option
@stopping_settings_option
def list_(show_all: bool, state: str | None, group: str | None, as_json: bool, settings: Settings) -> None:
    """List jobs, oldest first, with state, progress and cost, and recurring jobs with their next run."""
    from gpuwatch.app.jobs.job_series import listed_series
    from gpuwatch.app.jobs.jobs import listed_jobs
    from gpuwatch.cli.jobs.job_series import print_series_list
    from gpuwatch.domain.jobs.job import JobState, job_view

    selected_state = None if state is None else JobState(state)
    jobs = [job_view(job) for job in listed_jobs(settings, all_jobs=show_all, state=selected_state, group=group)]
    if as_json:
        json_out(jobs)
        return
    series = (
        [] if state else [one for one in listed_series(settings) if group in {None, one.definition.resources.group}]
    )
    if jobs:
        table(_JOB_COLUMNS, jobs, timezone=settings.timezone)
    if series:
        click.echo("\nRecurring jobs:" if jobs else "Recurring jobs:")
        print_series_list(series, settings.timezone)
    if not jobs and not series:
        note("no jobs; queue one with: gpuwatch jobs submit FILE")


@click.command(cls=Command, examples=("gpuwatch jobs show qlora-8b",))
@click.argument("name", metavar="JOB", shell_complete=completes("jobs"))
@json_option
@stopping_settings_option
def show(name: str, as_json: bool, settings: Settings) -> None:
    """Show a job by its id or name: its definition, its runs, and its events; or a recurring job with its runs."""
    from gpuwatch.app.jobs.job_series import series_details, series_details_view
    from gpuwatch.app.jobs.jobs import details_view, job_details
    from gpuwatch.cli.jobs.job_series import print_series

    if (series := series_details(settings, name)) is not None:
        if as_json:
            json_out(series_details_view(series))
        else:
            print_series(series, settings.timezone)
        return
    details = job_details(settings, name)
    if as_json:
        json_out(details_view(details))
    else:
        _print_details(details, settings.timezone)


@click.command(cls=Command, examples=("gpuwatch jobs cancel qlora-8b",))
@click.argument("name", metavar="JOB", shell_complete=completes("jobs"))
@json_option
@stopping_settings_option
def cancel(name: str, as_json: bool, settings: Settings) -> int:
    """Cancel a job and end its instance; of a recurring job, end it with the run that is open.

    Exit codes: 0 cancelled, 2 no such job or it is over, 3 the end of its instance could not be confirmed; the daemon
    keeps trying.
    """
    from gpuwatch.app.jobs.job_actions import cancel_job
    from gpuwatch.app.jobs.job_series import series_details
    from gpuwatch.cli.jobs.job_series import end
    from gpuwatch.domain.jobs.job import job_view

    if series_details(settings, name) is not None:
        return end(settings, name, as_json)
    cancelled, is_confirmed = cancel_job(settings, name, note, actor=command_actor())
    if as_json:
        json_out(job_view(cancelled))
    else:
        click.echo(f"job {cancelled.job_id} ({cancelled.name}) is {cancelled.state.value}")
    return Exit.DONE if is_confirmed else Exit.CANNOT_TELL


@click.command(
    cls=Command, examples=("gpuwatch jobs retry qlora-8b", "gpuwatch jobs retry qlora-8b --file jobs/qlora-8b.toml")
)
@click.argument("name", metavar="JOB", shell_complete=completes("jobs"))
@click.option(
    "--file", type=click.Path(dir_okay=False, path_type=Path), help="Updated job file, for example with another limit."
)
@json_option
@settings_option
def retry(name: str, file: Path | None, as_json: bool, settings: Settings) -> None:
    """Queue a failed, cancelled or paused job again, or a recurring job's newest run, from its last checkpoint."""
    from gpuwatch.app.jobs.job_actions import not_retriable, retry_job
    from gpuwatch.domain.jobs.job import job_view

    queued, changed = retry_job(settings, name, file, actor=command_actor())
    if not changed:
        raise not_retriable(queued)
    if as_json:
        json_out(job_view(queued))
    else:
        click.echo(f"job {queued.job_id} ({queued.name}) is queued")


def steps_text(most_usd: Decimal | float | None) -> str:
    """Say what a job does that prepares its data, and what that can cost at most; None: it has no limit in all."""
    cost = (
        "nothing limits both together without max_usd" if most_usd is None else f"{dollars(most_usd)} at most for both"
    )
    return f"prepares its data first, then rents its own machine; {cost}"


def _print_details(details: JobDetails, timezone: str) -> None:
    from gpuwatch.domain.jobs.checkpoints import kept_facts
    from gpuwatch.domain.jobs.job import move_text
    from gpuwatch.domain.jobs.run_sample import sample_facts, without_older_samples
    from gpuwatch.domain.market.money import dollars, usd

    job, spec = details.job, details.job.definition.whole
    lines: Sequence[tuple[str, str]] = (
        ("job", f"{job.job_id} ({job.name})"),
        ("state", _state_text(job.state, job.definition.stage) + (f": {job.reason}" if job.reason else "")),
        ("command", spec.command.partition("\n")[0] or "a script"),
        ("GPU", _gpu_text(spec.resources)),
        *([("prepare", _prepare_text(spec.prepare))] if spec.prepare else []),
        *([("machines", f"{spec.nodes}, by dstack")] if spec.nodes > 1 else []),
        *([("log", details.log_is_at)] if details.log_is_at else []),
        ("deadline", local(job.deadline, timezone)),
        ("priority", str(job.priority)),
        ("spent", dollars(usd(job.spent_microusd))),
        ("launch", job.launch_id or "–"),
        *kept_facts(spec),
        ("runs", f"{job.run_number}; {job.retries_left} retries left"),
        *([("spot", details.spot_first.text(ZoneInfo(timezone)))] if details.spot_first else []),
        *([("paused", details.pause.text(ZoneInfo(timezone)))] if details.pause else []),
        *(("moved", f"{local(move.at, timezone)} {move_text(move)}") for move in details.moves),
        *([("relocate", f"{spec.relocate.action}: {details.advice or 'nothing found yet'}")] if spec.relocate else []),
    )
    newest = details.newest_sample
    now = () if newest is None else sample_facts(newest, lambda at: local(at, timezone))
    for label, value in (*lines, *now):
        click.echo(f"{label:<10} {value}")
    click.echo()
    table(_EVENT_COLUMNS, without_older_samples(details.events), timezone=timezone)


def _gpu_text(resources: Watch) -> str:
    gpus = ", ".join(resources.gpu) if len(resources.gpu) < 5 else f"any of {len(resources.gpu)} GPUs"
    return f"{resources.gpu_count_min} × {gpus}" if resources.gpu_count_min else "none"


def _prepare_text(prepare: PrepareSpec) -> str:
    command = prepare.command.partition("\n")[0] or "a script"
    return f"{command}; GPU: {_gpu_text(prepare.resources)}; hands on: {', '.join(prepare.outputs) or 'nothing'}"


def _detail_text(event: JobEvent) -> str:
    return "; ".join(f"{key}: {value}" for key, value in event.detail.items() if key not in {"from", "sample"})


@click.command(cls=Command, examples=("gpuwatch jobs logs qlora-8b", "gpuwatch jobs logs -f qlora-8b"))
@click.argument("name", metavar="JOB", shell_complete=completes("jobs"))
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the job ends.")
@click.option("--run", "run_number", type=click.IntRange(1), default=None, help="Run number. Default: the newest.")
@click.option("--tail", type=click.IntRange(0), default=None, metavar="N", help="Only the last N lines.")
@json_option
@stopping_settings_option
def logs(name: str, follow: bool, run_number: int | None, tail: int | None, as_json: bool, settings: Settings) -> None:
    """Show the output of a job's command; of a recurring job, that of its newest run.

    While the job runs, gpuwatch fetches it about once a minute.
    """
    from gpuwatch.app.jobs.job_output import follow_log, job_log

    if follow and (as_json or run_number is not None):
        raise UsageError("--follow shows the newest run: omit --json and --run")
    log = job_log(settings, name, run_number, tail)
    if log.job.series == name:
        note(f"the newest run is {log.job.name}")
    if log.is_at is not None:
        note(f"gpuwatch did not fetch it; see: {log.is_at}")
    elif follow:
        for line in follow_log(settings, name, tail):
            click.echo(displayable(line))
        return
    if as_json:
        json_out({
            "job_id": log.job.job_id, "name": log.job.name, "state": log.job.state.value,
            "run_number": log.run_number, "lines": list(log.lines),
            "is_at": log.is_at,
        })  # fmt: skip
        return
    for line in log.lines:
        click.echo(displayable(line))
    if not log.lines and log.is_at is None:
        note(f"job {log.job.name} is {log.job.state.value}: no log has been fetched yet")


@click.command(cls=Command, examples=("gpuwatch jobs results qlora-8b",))
@click.argument("name", metavar="JOB", shell_complete=completes("jobs"))
@json_option
@stopping_settings_option
def results(name: str, as_json: bool, settings: Settings) -> None:
    """List the result files of a job, or of a recurring job's newest run, fetched and verified by size and hash."""
    from gpuwatch.app.jobs.job_output import job_results

    job, files = job_results(settings, name)
    if as_json:
        json_out(files)
    elif files:
        table(_OUTPUT_COLUMNS, files)
    else:
        note(f"job {job.name} is {job.state.value}: no results have been fetched")


@click.command(
    cls=Command,
    examples=("gpuwatch jobs handover jobs/cluster.toml --to skypilot > task.yaml && sky launch -c cluster task.yaml",),
)
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--to", "tool", type=click.Choice(("skypilot", "dstack")), required=True, help="The orchestrator.")
@provider_option("Poll only this provider; may be repeated.", multiple=True)
@json_option
@settings_option
def handover(file: Path, tool: str, provider: tuple[str, ...], as_json: bool, settings: Settings) -> int:
    """Print a multi-node job (nodes ≥ 2) as a SkyPilot or dstack task, with its price cap and end time.

    Rents and stores nothing. gpuwatch's budgets, limits and guard do not apply to what the orchestrator rents.

    Exit codes: 0 printed, 1 nothing matched, 2 usage or settings are wrong, 3 cannot tell.
    """
    from gpuwatch.app.jobs.job_handover import job_handover
    from gpuwatch.app.watches.handover import handover_json
    from gpuwatch.domain.watches.orchestrator_task import as_yaml

    result = job_handover(settings, file, tool, provider)
    task_handover = result.handover
    if as_json:
        figures = {"usd_hour": result.usd_hour, "usd_low": result.usd_low, "usd_high": result.usd_high}
        more = {"nodes": result.nodes, "runtime_s": result.runtime_s, "left_out": list(result.left_out)}
        json_out(handover_json(task_handover) | more | figures)
    elif task_handover.task is not None:
        click.echo(as_yaml(task_handover.task), nl=False)
    for name in task_handover.skipped:
        note(f"{name} has a matching offer, but {tool} runs no cluster there")
    if task_handover.task is None:
        note(f"no offer within the job's limit that {tool} could rent")
        return Exit.FAILED if task_handover.complete else Exit.CANNOT_TELL
    total_text = ""
    if result.usd_low is not None:
        total_text = f"; {dollars(result.usd_low)} to {dollars(result.usd_high or 0)} in total"
    note(
        f"{result.nodes} machines at this price: {per_hour(result.usd_hour or 0, most=2)}{total_text}. "
        "gpuwatch does not monitor them"
    )
    if result.left_out:
        note(f"{tool} does not support: {', '.join(result.left_out)}")
    return Exit.DONE
