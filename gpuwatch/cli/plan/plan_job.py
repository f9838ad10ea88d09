"""`gpuwatch plan job`: the total cost of a job, on given cards or on real offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpuwatch.app.plan.plan_job import plan_on_hardware, plan_on_offers
from gpuwatch.app.plan.plan_request import JOB_OPTIONS, job_request
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli import Exit
from gpuwatch.cli.base import verbose_option
from gpuwatch.cli.html import html_option, refuse_html_with, save_page
from gpuwatch.cli.options import (
    config_option,
    json_option,
)
from gpuwatch.cli.output import record_output
from gpuwatch.cli.plan.plan import (
    KeyCommand,
    by_option,
    deadline,
    key_options,
    note_model,
    refuse_watch_with,
    watch_options,
    within,
)
from gpuwatch.cli.plan.plan_job_show import job_page, show_changes, show_hardware, show_offers, show_watch
from gpuwatch.domain.jobs.job_request import JobRequest
from gpuwatch.domain.plan.job_comparison import Feasibility
from gpuwatch.errors import UsageError


@click.command(
    cls=KeyCommand,
    keys=JobRequest,
    options=JOB_OPTIONS,
    example="articles-job.toml",
    examples=(
        "gpuwatch plan job '4x A100 @ 1.20 for 72h' '4x H100 @ 3.50 for 24h'",
        "gpuwatch plan job '4x A100 @ 1.20' '4x H100 @ 3.50' --hours 72 --set on='4x A100' --set speedup='4x H100=2.5'",
        "gpuwatch plan job --size-of 70B --method qlora --tokens 50M --under 100 --by Sunday --set disk_gb=200",
        "gpuwatch plan job '1x H100 @ 2.00' --size-of 8B --method lora --tokens 100M --set what_if=true",
        "gpuwatch plan job jobs/qlora-8b.toml --poll",
    ),
)
@key_options(JobRequest, JOB_OPTIONS, "[FILE] [CANDIDATE]...")
@by_option
@watch_options("On offers: print the [[watch]] for this job, instead of the offers.")
@html_option
@verbose_option
@json_option
@config_option
def job(
    values: dict[str, Any],
    by: str | None,
    watch: str | None,
    write: bool,
    html: Path | None,
    as_json: bool,
    config: str | None,
) -> int:
    """Compute a job's total cost: work, setup, restarts, minimum billing, traffic.

    FILE is a job file; figures that only the planner needs are in its table [plan], or set with --set.

    With candidates, such as "4x A100 @ 1.20 for 72h", compares these; otherwise ranks real offers by the cost of the
    job.

    Exit codes: 0 done, 1 the job fits no offer or is not feasible, 2 usage, 3 no prices are known, or a provider did
    not answer.
    """
    if by is not None:
        values["within"] = within(deadline(by, load_settings(config)))
    request = job_request(values)
    refuse_watch_with(watch, write=write, as_json=as_json)
    if watch is not None and request.candidates:
        raise UsageError("--watch requires real offers: omit the candidates")
    if request.what_if:
        if html is not None or watch is not None:
            raise UsageError("what_if prints a table: omit --html and --watch")
        show_changes(request, as_json)
        return Exit.DONE
    refuse_html_with(html, as_data=as_json or watch is not None)
    note_model(request)
    if request.candidates:
        on_hardware = plan_on_hardware(request)
        with record_output() as recording:
            verdict = show_hardware(request, on_hardware, as_json)
        if html:
            bars = [(hardware.candidate.on.text, hardware.cost) for hardware in on_hardware.compared]
            save_page(html, job_page(request, bars, recording))
        return Exit.FAILED if verdict is Feasibility.NOT_FEASIBLE else Exit.DONE
    settings = load_settings(config)
    plan = plan_on_offers(settings, request)
    if watch is None:
        with record_output() as recording:
            verdict = show_offers(request, plan, None if as_json else settings.timezone)
        if html:
            placed = plan.ranking.placed[: min(request.limit, 20)]
            bars = [
                (f"{job_offer.offer.gpu_count}× {job_offer.offer.gpu}, {job_offer.offer.provider}", job_offer.cost)
                for job_offer in placed
            ]
            save_page(html, job_page(request, bars, recording))
    else:
        verdict = show_watch(request, plan, watch, config if write else None, write=write)
    if not plan.ranking.seen or plan.market.errors:
        return Exit.CANNOT_TELL
    return Exit.DONE if plan.ranking.placed and verdict is not Feasibility.NOT_FEASIBLE else Exit.FAILED
