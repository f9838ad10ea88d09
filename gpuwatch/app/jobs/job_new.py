"""Create a job file from the planner's results: memory, GPUs, disk, hours and limit, to be read and edited."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import ceil, floor, inf
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.app.plan.plan_job import OfferPlan, job_verdict
from gpuwatch.app.plan.plan_watch import (
    LIMIT,
    are_under_one_limit,
    chosen_offers,
    offer_clauses,
    offers_under_one_limit,
    toml_value,
)
from gpuwatch.domain.jobs.job_request import JobRequest
from gpuwatch.domain.launches.money.launch_costs import END_PROVEN_S
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.market.money import MICRO, dollars, per_hour, usd
from gpuwatch.domain.market.offer import ARM64, arch_of, clean
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.job_comparison import Feasibility, JobOffer
from gpuwatch.errors import GpuwatchError, UsageError

SCHEMA_FILE = "gpuwatch-job.schema.json"
_NOT_OF_RESOURCES = frozenset({"listed"})
_DIGITS_MAX = 8  # decimals of the hours in a file
_CHECKPOINT_EVERY = "20m"  # the articles' advice: every 15 to 30 minutes


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a job file besides the plan; the options of `gpuwatch jobs new`."""

    name: str | None
    command: str
    image: str | None
    deadline: datetime | None
    checkpoint: str | None = None
    results: tuple[str, ...] = ()


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job file and the plan that it is based on.

    Attributes:
        verdict: None: neither a price limit nor a deadline was given.
        text: None: no known offer can run the job within the limits.
        job_offers: those that the file accepts, the recommended one first; none if the job waits for a lower price.
        hours: of the whole job, on the chosen offers.
        cost_usd: likewise.
    """

    name: str
    verdict: Feasibility | None
    text: str | None
    job_offers: tuple[JobOffer, ...] = ()
    gpus: tuple[str, ...] = ()
    hours: FigureRange | None = None
    cost_usd: FigureRange | None = None
    samples: int = 0


def plan_new_job(new_job: NewJob, request: JobRequest, plan: OfferPlan) -> PlannedJob:
    """The job file for a plan."""
    verdict = job_verdict(request, plan.spec, plan.costs)
    under_usd = inf if request.max_cost is None else request.max_cost
    name = new_job.name or _name(request)
    job_offers = (
        () if verdict is Feasibility.NOT_FEASIBLE else _comparable_offers(chosen_offers(request, plan), under_usd)
    )
    if not job_offers:
        return PlannedJob(name=name, verdict=verdict, text=None, samples=plan.ranking.seen)
    if verdict is Feasibility.FEASIBLE and not are_under_one_limit(job_offers, under_usd, END_PROVEN_S):
        verdict = Feasibility.UNCERTAIN  # it is charged until its end is proven
    hours = FigureRange(
        min(job_offer.cost.low.hours for job_offer in job_offers),
        max(job_offer.cost.high.hours for job_offer in job_offers),
    )
    cost = FigureRange(
        min(job_offer.cost.low.microusd for job_offer in job_offers) / MICRO,
        max(job_offer.cost.high.microusd for job_offer in job_offers) / MICRO,
    )
    planned = PlannedJob(
        name=name,
        verdict=verdict,
        text="",
        job_offers=() if verdict is Feasibility.UNCERTAIN else job_offers,
        gpus=tuple(dict.fromkeys(f"{one.offer.gpu_count}× {one.offer.gpu}" for one in job_offers)),
        hours=hours,
        cost_usd=cost,
        samples=plan.ranking.seen,
    )
    text = "\n".join(_lines(new_job, request, plan, planned, job_offers)) + "\n"
    return msgspec.structs.replace(planned, text=text)


def _comparable_offers(job_offers: Sequence[JobOffer], under_usd: float) -> tuple[JobOffer, ...]:
    """Offers with as many GPUs as the cheapest, because one limit must fit all of them. A job rents no Arm machine."""
    offers = [job_offer for job_offer in job_offers if arch_of(job_offer.offer) != ARM64]
    if not offers:
        return ()
    first = offers[0]
    same_count = [job_offer for job_offer in offers if job_offer.offer.gpu_count == first.offer.gpu_count]
    limit_usd = LIMIT * first.cost.microusd / MICRO if under_usd == inf else under_usd
    beyond_s = 0.0 if under_usd == inf else END_PROVEN_S
    return tuple(offers_under_one_limit(same_count, limit_usd, beyond_s))


def jobs_folder(config: str | None) -> Path:
    """The folder of job files beside the settings file. Raises UsageError: there is none."""
    from gpuwatch.settings.sources import collect  # noqa: PLC0415 pydantic

    sources = collect(config)
    if sources.file is None:
        raise UsageError("there is no settings file beside which a job could be written; create one: gpuwatch init")
    return sources.file.resolve().parent / "jobs"


def write_job_file(path: Path, text: str, *, force: bool) -> None:
    """Write it, and the schema for editors beside it. Raises GpuwatchError: it exists, or cannot be written."""
    from gpuwatch.settings.reference import job_json_schema  # noqa: PLC0415 pydantic

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
        with os.fdopen(os.open(path, mode, 0o600), "w", encoding="utf-8") as to:
            to.write(text)
        (path.parent / SCHEMA_FILE).write_text(json.dumps(job_json_schema(), indent=2) + "\n")
    except FileExistsError:
        raise GpuwatchError(f"{path} already exists; overwrite it with --force, or choose another --name") from None
    except OSError as error:
        raise GpuwatchError(f"cannot write {error.filename or path}: {error.strerror}") from None


def _name(request: JobRequest) -> str:
    """A name such as `qlora-8b`."""
    if request.model is None:
        return "job"
    model = re.sub(r"[^A-Za-z0-9.]+", "-", request.model.name).strip("-").lower()
    return f"{request.method}-{model}"


def _lines(
    new_job: NewJob, request: JobRequest, plan: OfferPlan, planned: PlannedJob, job_offers: Sequence[JobOffer]
) -> Iterator[str]:
    hours, cost, deadline = planned.hours, planned.cost_usd, new_job.deadline
    assert hours is not None
    assert cost is not None
    yield f"#:schema ./{SCHEMA_FILE}"
    yield f"# Estimated for {planned.samples:,} offers: {hours_range_text(hours)} hours,"
    yield f"# {usd_range_text(cost)} in all ({clean(job_offers[0].cost.how)})."
    if not planned.job_offers:
        yield "# No offer is under the limit in the worst case: the job waits for a lower price."
    for job_offer in planned.job_offers[:4]:
        offer, job_hours = job_offer.offer, FigureRange(job_offer.cost.low.hours, job_offer.cost.high.hours)
        price = per_hour(usd(job_offer.price.price_microusd_hour))
        yield f"#   {offer.gpu_count}× {clean(offer.gpu)} at {clean(offer.provider)} for {price}:"
        yield f"#     {hours_range_text(job_hours)} hours, at most {dollars(usd(job_offer.cost.microusd))}"
    yield f"name = {toml_value(planned.name)}"
    if new_job.image:
        yield f"image = {toml_value(new_job.image)}"
    yield f"command = {toml_value(new_job.command)}"
    yield from _files(new_job)
    dearest = max(job_offer.price.price_microusd_hour for job_offer in job_offers) / MICRO
    most_h = inf if request.max_cost is None else request.max_cost / dearest - END_PROVEN_S / 3600
    yield f'hours = "{_file_hours(hours, most_h)}"                    # including start and loading'
    if deadline is not None:
        yield f"deadline = {rfc3339(deadline)}"
    yield "retries = 2"
    yield f"limit = {toml_value(_limit(request, job_offers))}"
    yield ""
    memory_gb = plan.spec.memory_gb
    yield "[resources]" + (f"    # the job needs {memory_gb:,.0f} GB of GPU memory in total" if memory_gb else "")
    for key, value in offer_clauses(request, plan, job_offers).items():
        if key in _NOT_OF_RESOURCES:
            continue
        yield f"{key} = {toml_value(value)}"


def _files(new_job: NewJob) -> Iterator[str]:
    results = [{"source": source, "target": "results"} for source in new_job.results]
    if results:
        yield f"results = {toml_value(results)}"
    else:
        yield '# results = [{ source = "out/*", target = "results" }]'
    if new_job.checkpoint:
        yield f'checkpoint = {{ path = {toml_value(new_job.checkpoint)}, every = "{_CHECKPOINT_EVERY}" }}'
    else:
        yield f'# checkpoint = {{ path = "ckpt", every = "{_CHECKPOINT_EVERY}", resume = "… --resume" }}'
    yield '# pilot = "1%"                         # small run before the job'
    yield '# active = ["22:00-08:00", "Sat-Sun"]  # test with gpuwatch forecasts calendar GPU whether that is cheaper'


def _limit(request: JobRequest, job_offers: Sequence[JobOffer]) -> Mapping[str, Any]:
    """The total cost limit; without one, the price per GPU-hour of the dearest of the chosen offers.

    They are chosen so that even at that price the job costs little more than on the cheapest (`LIMIT`).
    """
    if request.max_cost is not None:
        return {"max_usd": request.max_cost}
    dearest = max(job_offer.price.price_microusd_hour / job_offer.offer.gpu_count for job_offer in job_offers)
    return {"max_price": ceil(dearest / MICRO * 100) / 100}


def hours_range_text(hours: FigureRange) -> str:
    """`2.8 to 50.5`; a single figure if both are equal."""
    low, high = f"{hours.low:.1f}", f"{hours.high:.1f}"
    return low if low == high else f"{low} to {high}"


def usd_range_text(cost_usd: FigureRange) -> str:
    """`$1.36 to $16.35`; a single figure if both are equal."""
    low, high = dollars(cost_usd.low), dollars(cost_usd.high)
    return low if low == high else f"{low} to {high}"


def _file_hours(hours: FigureRange, most_h: float) -> str:
    """The hours of the whole job, in tenths, or as finely as needed to stay under `most_h`."""
    digits = 1
    while digits < _DIGITS_MAX and _rounded_up(hours.high, digits) > most_h:
        digits += 1
    high = _rounded_up(hours.high, digits)
    low = min(high, max(10**-digits, floor(round(hours.low * 10**digits, 6)) / 10**digits))
    return f"{high:g}" if low == high else f"{low:.10g}-{high:.10g}"


def _rounded_up(hours: float, digits: int) -> float:
    scale: int = 10**digits
    return max(1, ceil(round(hours * scale, 6))) / scale


def planned_job_json(planned: PlannedJob, path: Path | None) -> dict[str, Any]:
    """JSON of `gpuwatch jobs new`."""
    return {
        "name": planned.name,
        "file": None if path is None else str(path),
        "feasible": planned.verdict,
        "samples": planned.samples,
        "hours": None if planned.hours is None else list(planned.hours),
        "cost_usd": None if planned.cost_usd is None else list(planned.cost_usd),
        "candidates": [
            {
                "provider": job_offer.offer.provider,
                "offer_id": job_offer.offer.offer_id,
                "gpu": job_offer.offer.gpu,
                "gpu_count": job_offer.offer.gpu_count,
                "price_usd_hour": job_offer.price.price_microusd_hour / MICRO,
                "hours": [job_offer.cost.low.hours, job_offer.cost.high.hours],
                "job_cost_usd": job_offer.cost.microusd / MICRO,
            }
            for job_offer in planned.job_offers
        ],
    }
