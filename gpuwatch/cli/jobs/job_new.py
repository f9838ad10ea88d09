"""`gpuwatch jobs new`: write a job file with the planner."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import (
    CURRENT_DATA,
    POLL,
    Between,
    completes,
    config_option,
    duration_option,
    gpu_option,
    json_option,
)
from gpuwatch.cli.output import json_out, note
from gpuwatch.cli.plan.plan import decimal_option
from gpuwatch.cli.plan.plan_size import workload_options
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.errors import StoreMissing, UsageError

if TYPE_CHECKING:
    from gpuwatch.app.jobs.job_new import PlannedJob
    from gpuwatch.app.plan.plan_job import JobRequest, OfferPlan
    from gpuwatch.domain.plan.memory_need import WorkloadRequest

_FOLDER = Path("jobs")


@click.command(
    cls=Command,
    examples=(
        "gpuwatch jobs new --size-of 8B --method qlora --tokens 100M --by Sunday --under 100 \\\n"
        '      --command "python train.py"',
        'gpuwatch jobs new --hours 20 --on "1x H100" --under 60 --command ./run.sh --name nightly',
    ),
)
@workload_options(needed=False)
@click.option("--tokens", default=None, help='Tokens of the whole job: "100M".')
@click.option("--hours", default=None, help='Instead of --tokens: hours of work on the GPUs of --on, "20" or "18-30".')
@click.option("--on", default=None, metavar="GPUS", help='GPUs that --hours refers to: "1x H100".')
@click.option("--by", default=None, metavar="WHEN", help='Deadline: "Sunday", a date, a time, "2d".')
@click.option(
    "--under", "under_usd", type=Between(min=0, min_open=True), default=None, metavar="USD", help="Maximum cost."
)
@click.option("--command", required=True, help="Command to run.")
@click.option("--image", default=None, help="Container image. Default: PyTorch with CUDA.")
@click.option("--name", default=None, help="Job name. Default: method and model.")
@click.option("--result", "results", multiple=True, metavar="GLOB", help="Files to fetch; may be repeated.")
@click.option("--checkpoint", default=None, metavar="FOLDER", help="Where the command writes checkpoints.")
@gpu_option("--gpu", "Only offers with this GPU; may be repeated.", multiple=True)
@click.option("--count", default=None, help="Number of GPUs, N or MIN-MAX. Default: the number in --on.")
@click.option("--spot", type=click.Choice(["no", "only", "any"]), default="no", help="Spot (interruptible) offers.")
@click.option(
    "--interruptions-per-day", default=None, callback=decimal_option, help="Interruptions per day of a spot offer."
)
@click.option(
    "--provider", multiple=True, metavar="NAME", help="Only this provider.", shell_complete=completes("providers")
)
@click.option("--verified", is_flag=True, help="Only verified hosts.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Output file. Default: jobs/NAME.toml."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@POLL
@CURRENT_DATA
@duration_option("--timeout", "timeout_s", "With --poll: longest wait for all providers. Default: 60s.")
@json_option
@config_option
def new(workload: WorkloadRequest, as_json: bool, config: str | None, **options: Any) -> int:
    """Plan a job on current offers and write jobs/NAME.toml for you to review and submit.

    Exit codes: 0 written, 1 not feasible, 2 usage, 3 no prices are known, or a provider did not answer.
    """
    from zoneinfo import ZoneInfo

    from gpuwatch.app.jobs.job_new import NewJob, plan_new_job, planned_job_json, write_job_file
    from gpuwatch.app.plan.plan_job import plan_on_offers
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.domain.jobs.queue import deadline_from

    settings, now = load_settings(config), real_now()
    try:
        deadline = None if options["by"] is None else deadline_from(options["by"], now, ZoneInfo(settings.timezone))
    except ValueError as error:
        raise UsageError(f"--by {error}") from None
    within_s = None if deadline is None else (deadline - now).total_seconds()
    request = _request(workload, options, within_s)
    new_job = NewJob(
        name=options["name"],
        command=options["command"],
        image=options["image"],
        under_usd=options["under_usd"],
        deadline=deadline,
        checkpoint=options["checkpoint"],
        results=options["results"],
        spot=options["spot"],
    )
    plan = None
    with suppress(StoreMissing):
        plan = plan_on_offers(settings, request)
    if plan is None or not (plan.ranking.seen or plan.market.errors or request.poll or request.data):
        note("the store has no such prices: polling the providers")
        plan = plan_on_offers(settings, msgspec.structs.replace(request, poll=True))
    planned = plan_new_job(new_job, request, plan)
    path = None
    if planned.text is not None:
        path = options["out"] or _FOLDER / f"{planned.name}.toml"
        write_job_file(path, planned.text, force=options["force"])
    if as_json:
        json_out(planned_job_json(planned, path))
    else:
        _print(planned, plan, path)
    if path is None and (not plan.ranking.seen or plan.market.errors):
        return Exit.CANNOT_TELL
    return Exit.DONE if path is not None else Exit.FAILED


def _request(workload: WorkloadRequest, options: dict[str, Any], within_s: float | None) -> JobRequest:
    from gpuwatch.app.plan.plan_job import JobRequest

    table = {
        key: options[key] for key in ("tokens", "hours", "on", "interruptions_per_day") if options[key] is not None
    }
    if within_s is not None:
        table["within"] = f"{int(within_s)}s"
    if options["hours"] is not None and options["count"] is None:
        options = options | {"count": _resource_count(options["on"])}
    of_offers = ("gpu", "count", "spot", "provider", "verified", "poll", "data", "timeout_s")
    return JobRequest(
        job=table,
        workload=workload,
        max_cost_usd=options["under_usd"],
        listed=False,
        **{key: options[key] for key in of_offers},
        **_NOT_ASKED,
    )


def _resource_count(on: str | None) -> str | None:
    """Hours for one GPU do not show whether the command can use two; --count does."""
    from gpuwatch.domain.plan.figures import parse_gpu_config

    try:
        count = None if on is None else parse_gpu_config(on).count
    except ValueError:
        return None  # the plan reports the error
    return None if count is None else str(count)


_NOT_ASKED: dict[str, Any] = {
    "download_gb": None, "upload_gb": 0.0, "disk_gb": None, "preloaded": False, "samples": None,
    "tokens_per_sample": None, "epochs": None, "prompt_tokens": None, "labour_hours": 0.0, "labour_usd_hour": 0.0,
    "prepare_hours": 0.0, "prepare_usd_hour": None, "candidates": (), "commission": 0.0, "disk_usd_gb_month": 0.0,
    "download_usd_gb": None, "upload_usd_gb": None, "min_billing_s": None, "seed": False, "credit": 0.0,
}  # fmt: skip


def _print(planned: PlannedJob, plan: OfferPlan, path: Path | None) -> None:
    from gpuwatch.app.jobs.job_new import hours_range_text, usd_range_text
    from gpuwatch.domain.market.money import dollars, usd

    for error in plan.market.errors:
        note(str(error))
    if path is None or planned.hours is None or planned.cost_usd is None:
        click.echo("not feasible" if planned.samples else "no prices are known")
        for reason, count in plan.ranking.refused[:5]:
            note(f"{count_text(count, 'offer')}: {reason}")
        if plan.costs:
            cheapest = min(plan.costs, key=lambda cost: cost.microusd)
            note(f"the cheapest costs {dollars(usd(cheapest.microusd))} and takes {cheapest.high.hours:.1f} hours")
        return
    verdict = f"{planned.verdict.value}: " if planned.verdict is not None else ""
    hours, cost = planned.hours, planned.cost_usd
    click.echo(f"{verdict}{usd_range_text(cost)}, {hours_range_text(hours)} hours, on {', '.join(planned.gpus)}")
    if not planned.job_offers:
        note("no offer is under the limit in the worst case: the job waits for a lower price")
    click.echo(f"wrote {path}; next: gpuwatch job submit {path}")
