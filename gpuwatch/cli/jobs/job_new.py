"""`gpuwatch jobs new`: write a job file with the planner."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from gpuwatch.app.jobs.job_new import (
    NewJob,
    PlannedJob,
    hours_range_text,
    plan_new_job,
    planned_job_json,
    usd_range_text,
    write_job_file,
)
from gpuwatch.app.plan.plan_job import OfferPlan, plan_on_offers
from gpuwatch.app.plan.plan_request import NEW_JOB_OPTIONS, job_request
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli import Exit
from gpuwatch.cli.options import config_option, json_option
from gpuwatch.cli.output import json_out, note
from gpuwatch.cli.plan.plan import KeyCommand, by_option, deadline, key_options, within
from gpuwatch.domain.jobs.job_request import JobRequest
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import dollars, usd
from gpuwatch.domain.plan.figures import parse_gpu_config
from gpuwatch.errors import StoreMissing

_FOLDER = Path("jobs")


@click.command(
    cls=KeyCommand,
    keys=JobRequest,
    options=NEW_JOB_OPTIONS,
    example="articles-job.toml",
    examples=(
        "gpuwatch jobs new --size-of 8B --method qlora --tokens 100M --by Sunday --under 100 \\\n"
        '      --command "python train.py"',
        'gpuwatch jobs new --hours 20 --on "1x H100" --under 60 --command ./run.sh --name nightly',
    ),
)
@key_options(JobRequest, NEW_JOB_OPTIONS, "[FILE]")
@by_option
@click.option("--command", required=True, help="Command to run.")
@click.option("--image", default=None, help="Container image. Default: PyTorch with CUDA.")
@click.option("--name", default=None, help="Job name. Default: method and model.")
@click.option("--result", "results", multiple=True, metavar="GLOB", help="Files to fetch; may be repeated.")
@click.option("--checkpoint", default=None, metavar="FOLDER", help="Where the command writes checkpoints.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Output file. Default: jobs/NAME.toml."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@json_option
@config_option
def new(values: dict[str, Any], by: str | None, as_json: bool, config: str | None, **options: Any) -> int:
    """Plan a job on current offers and write jobs/NAME.toml for you to review and submit.

    Exit codes: 0 written, 1 not feasible, 2 usage, 3 no prices are known, or a provider did not answer.
    """
    settings = load_settings(config)
    done_by = None if by is None else deadline(by, settings)
    if done_by is not None:
        values["within"] = within(done_by)
    if "hours" in values and "count" not in values and (count := _resource_count(values.get("on"))):
        values["count"] = count
    request = job_request(values, NEW_JOB_OPTIONS)
    new_job = NewJob(
        name=options["name"],
        command=options["command"],
        image=options["image"],
        deadline=done_by,
        checkpoint=options["checkpoint"],
        results=options["results"],
    )
    plan = None
    with suppress(StoreMissing):
        plan = plan_on_offers(settings, request)
    if plan is None or not (plan.ranking.seen or plan.market.errors or request.poll or request.data):
        note("the store has no such prices: polling the providers")
        plan = plan_on_offers(settings, request.model_copy(update={"poll": True}))
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


def _resource_count(on: str | None) -> str | None:
    """Hours for one GPU do not show whether the command can use two; --count does."""
    try:
        count = None if on is None else parse_gpu_config(on).count
    except ValueError:
        return None  # the plan reports the error
    return None if count is None else str(count)


def _print(planned: PlannedJob, plan: OfferPlan, path: Path | None) -> None:
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
    click.echo(f"wrote {path}; next: gpuwatch jobs submit {path}")
