"""`gpuwatch plan job`: the total cost of a job, on given cards or on real offers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, refuse_given
from gpuwatch.cli.html import html_option, refuse_html_with, save_page
from gpuwatch.cli.options import (
    CURRENT_DATA,
    LISTED,
    POLL,
    Between,
    completes,
    config_option,
    duration_option,
    gpu_option,
    json_option,
)
from gpuwatch.cli.output import record_output
from gpuwatch.cli.plan.plan import ANY_PRICE, Figure, Figures, decimal_option, pairs, refuse_watch_with, watch_options
from gpuwatch.cli.plan.plan_job_show import job_page, show_hardware, show_offers, show_watch
from gpuwatch.cli.plan.plan_size import note_model, refuse_ignored_workload, workload_options
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_job import JobRequest
    from gpuwatch.domain.plan.memory_need import WorkloadRequest

NOT_FEASIBLE = "not feasible"  # same as in `Feasibility`, which is imported only when needed

_PAIRS = {"multiple": True, "callback": pairs}
_JOB_OPTIONS: dict[str, dict[str, Any]] = {  # keyed as in `[watch.job]`
    "hours": {"help": 'Hours of work on the GPUs of --on, "72" or "60-80".'},
    "on": {"metavar": "GPUS", "help": 'GPUs that --hours refers to: "4x A100".'},
    "speedup": {"metavar": "GPUS=X", "help": 'Speed of other GPUs relative to --on: "4x H100=2.5".'} | _PAIRS,
    "tokens": {"help": 'Tokens of the whole job, instead of hours: "10B".'},
    "tokens_per_s": {"metavar": "GPUS=N", "help": 'Measured speed: "2x H100=350-500".'} | _PAIRS,
    "utilisation": {"help": 'Share of the nominal FLOP/s that the job reaches: "0.4", "0.35-0.45".'},
    "scaling": {
        "callback": decimal_option,
        "help": "Speed that each further GPU adds, as a share of one GPU. Default: 1.",
    },
    "memory_gb": {
        "callback": decimal_option,
        "help": "Total GPU memory the job needs, in GB. Default: what --size-of needs.",
    },
    "setup": {"metavar": "DURATION", "help": 'Setup, once: "10m".'},
    "load": {"metavar": "DURATION", "help": 'Time to load the model at each start: "5m-7m".'},
    "image_gb": {"callback": decimal_option, "help": "Image size in GB, pulled at each start."},
    "download_mbps": {"callback": decimal_option, "help": "Download speed in Mbit/s if the offer does not state it."},
    "checkpoint_every": {"metavar": "DURATION", "help": "Checkpoint interval."},
    "within": {"metavar": "DURATION", "help": 'Longest time the whole job may take: "24h".'},
    "interruptions_per_day": {"callback": decimal_option, "help": "Interruptions per day of a spot instance."},
}


def _job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for key, how in reversed(_JOB_OPTIONS.items()):
        command = click.option(f"--{key.replace('_', '-')}", key, **how)(command)
    return command


_OF_CANDIDATES = ("commission", "disk_usd_gb_month", "download_usd_gb", "upload_usd_gb", "min_billing_s")


def _refuse_watch_with(request: JobRequest, watch: str | None, write: bool, as_json: bool) -> None:
    refuse_watch_with(watch, write=write, as_json=as_json)
    if watch is not None and request.candidates:
        raise UsageError("--watch requires real offers: omit the candidates")


def _refuse_ignored(workload: WorkloadRequest, options: dict[str, Any]) -> None:
    """Reject options that would have no effect. Raises UsageError."""
    if options["candidates"]:
        refuse_given("requires real offers: omit the candidates", "listed", "timeout_s", "limit", "data", "any_price")
    else:
        refuse_given("applies to candidates only: real offers state it", *_OF_CANDIDATES)
    if not options["poll"]:
        refuse_given("requires --poll", "timeout_s")
    if options["data"] is not None:
        refuse_given("cannot be combined with --data", "poll")
    if options["hours"] is None and not options["candidates"]:
        refuse_given("requires --hours", "on", "speedup")
    refuse_ignored_workload(workload, "--size-of or --shape")
    note_model(workload)
    if options["labour_hours"] and not options["labour_usd_hour"]:
        raise UsageError("--engineer-hours requires --engineer-usd-hour")
    if not options["labour_hours"]:
        refuse_given("requires --engineer-hours", "labour_usd_hour")
    if not options["prepare_hours"]:
        refuse_given("requires --prepare-hours", "prepare_usd_hour")


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan job '4x A100 @ 1.20 for 72h' '4x H100 @ 3.50 for 24h'",
        "gpuwatch plan job '4x A100 @ 1.20' '4x H100 @ 3.50' --hours 72 --on '4x A100' --speedup '4x H100=2.5'",
        "gpuwatch plan job --size-of 70B --method qlora --tokens 50M --utilisation 0.35 --disk-gb 200",
    ),
)
@click.argument("candidates", nargs=-1, metavar="[CANDIDATE]...")
@_job_options
@workload_options(needed=False)
@click.option("--samples", type=Figure(), default=None, help='Number of samples in the data: "52k".')
@click.option("--tokens-per-sample", type=Figure(), default=None, help="Tokens per sample.")
@click.option("--epochs", type=Figure(), default=None, help="Passes over the data. Default: 1.")
@click.option("--prompt-tokens", type=Figure(), default=None, help="With inference: total prompt tokens.")
@click.option(
    "--download-gb", type=Between(min=0), default=None, help="GB the job downloads. Default: the model and its data."
)
@click.option("--upload-gb", type=Between(min=0), default=0.0, help="GB the job uploads.")
@click.option(
    "--disk-gb",
    type=Between(min=1),
    default=None,
    help="Disk in GB; part of the price. Default: model, data and a checkpoint.",
)
@click.option("--preloaded", is_flag=True, help="Image and model are already on the machine.")
@click.option("--engineer-hours", "labour_hours", type=Between(min=0), default=0.0, help="Hours of engineering work.")
@click.option(
    "--engineer-usd-hour", "labour_usd_hour", type=Between(min=0), default=0.0, help="USD per engineering hour."
)
@click.option(
    "--prepare-hours", type=Between(min=0), default=0.0, help="Hours of data preparation on a machine without GPUs."
)
@click.option(
    "--prepare-usd-hour",
    type=Figures(),
    default=None,
    help='USD per hour of that machine. Default: "0.03-0.10" (the articles).',
)
@gpu_option("--gpu", "Only offers with this GPU; may be repeated.", multiple=True)
@click.option("--count", default=None, help="Number of GPUs in an offer, N or MIN-MAX.")
@click.option("--spot", type=click.Choice(["no", "only", "any"]), default="no", help="Spot (interruptible) offers.")
@click.option(
    "--provider",
    multiple=True,
    metavar="NAME",
    help="Only this provider; may be repeated.",
    shell_complete=completes("providers"),
)
@click.option("--verified", is_flag=True, help="Only verified hosts.")
@LISTED
@POLL
@CURRENT_DATA
@duration_option("--timeout", "timeout_s", "With --poll: longest wait for all providers. Default: 60s.")
@click.option(
    "--commission",
    type=Between(min=0, max=10),
    default=0.0,
    help="Commission on top of the candidates' prices, such as 0.2.",
)
@click.option(
    "--disk-usd-gb-month",
    type=Between(min=0),
    default=0.0,
    help="Candidates: price of the disk in USD per GB-month.",
)
@click.option(
    "--download-usd-gb", type=Between(min=0), default=None, help="Candidates: price of traffic in USD per GB."
)
@click.option("--upload-usd-gb", type=Between(min=0), default=None, help="Candidates: price of traffic in USD per GB.")
@duration_option("--min-billing", "min_billing_s", "Candidates: minimum billing, such as 1h.")
@click.option("--credit", type=Between(min=0), default=0.0, help="Free credit in USD, subtracted from the total.")
@click.option(
    "--max-cost",
    "max_cost_usd",
    type=Between(min=0, min_open=True),
    default=None,
    metavar="USD",
    help="Maximum cost of the job: adds a verdict (feasible, uncertain, not feasible).",
)
@ANY_PRICE
@click.option("--limit", type=click.IntRange(1, 5000), default=20, show_default=True, help="Number of offers.")
@click.option("--seed", is_flag=True, help="Candidates: price × hours only, as the sources calculate.")
@watch_options("On offers: print the [[watch]] for this job, instead of the offers.")
@html_option
@json_option
@config_option
def job(
    workload: WorkloadRequest,
    limit: int,
    watch: str | None,
    write: bool,
    html: Path | None,
    as_json: bool,
    config: str | None,
    **options: Any,
) -> int:
    """Compute a job's total cost: work, setup, restarts, minimum billing, traffic.

    Without candidates, ranks real offers by the cost of the job:

    Exit codes: 0 done, 1 the job fits no offer or is not feasible, 2 usage, 3 no prices are known, or a provider did
    not answer.
    """
    from gpuwatch.app.plan.plan_job import JobRequest, plan_on_hardware, plan_on_offers
    from gpuwatch.bootstrap.settings_loading import load_settings

    _refuse_ignored(workload, options)
    table = {key: value for key in _JOB_OPTIONS if (value := options.pop(key)) is not None}
    request = JobRequest(job=table, workload=workload, **options)
    _refuse_watch_with(request, watch, write, as_json)
    refuse_html_with(html, as_data=as_json or watch is not None)
    if request.candidates:
        on_hardware = plan_on_hardware(request)
        with record_output() as recording:
            verdict = show_hardware(request, on_hardware, as_json)
        if html:
            bars = [(hardware.candidate.on.text, hardware.cost) for hardware in on_hardware.compared]
            save_page(html, job_page(request, bars, recording))
        return Exit.FAILED if verdict == NOT_FEASIBLE else Exit.DONE
    settings = load_settings(config)
    plan = plan_on_offers(settings, request)
    if watch is None:
        with record_output() as recording:
            verdict = show_offers(request, plan, limit, None if as_json else settings.timezone)
        if html:
            placed = plan.ranking.placed[: min(limit, 20)]
            bars = [
                (f"{job_offer.offer.gpu_count}× {job_offer.offer.gpu}, {job_offer.offer.provider}", job_offer.cost)
                for job_offer in placed
            ]
            save_page(html, job_page(request, bars, recording))
    else:
        verdict = show_watch(request, plan, watch, config if write else None, write=write)
    if not plan.ranking.seen or plan.market.errors:
        return Exit.CANNOT_TELL
    return Exit.DONE if plan.ranking.placed and verdict != NOT_FEASIBLE else Exit.FAILED
