"""The `[[watch]]` for a plan: the job, its price limit, its disk, and the required quality of hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpuwatch import providers
from gpuwatch.app.plan_job import JobRequest, OfferPlan
from gpuwatch.app.plan_size import named_model
from gpuwatch.atomic_file import atomic_file
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.domain.planning.figures import FigureRange
from gpuwatch.domain.planning.job_comparison import Feasibility, JobOffer, feasibility
from gpuwatch.domain.planning.job_hours import hours_on
from gpuwatch.domain.planning.language_models import LanguageModel
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.settings.sources import collect

if TYPE_CHECKING:
    from gpuwatch.domain.planning.job_hours import JobSpec

_MAX_GPUS: Final = 4  # GPU models in one watch: the cheapest for this job
_COUNTS: Final = (1, 2, 4, 8)  # GPU counts that later offers may have
RELIABILITY: Final = 0.95  # assumed requirement, unless the cheapest fitting offer has a lower one
MEMORY: Final = 0.97  # providers state the memory of the same card differently: 23.99 and 24 GiB
_RUNTIME: Final = 1.25  # assumed ratio of `max_runtime` to the longest planned hours
_OF_WORKLOAD: Final = ("method", "precision", "optimizer", "batch", "context")


def implied_watch(name: str, request: JobRequest, plan: OfferPlan) -> str | None:
    """The `[[watch]]` as TOML; None: the job is feasible on no offer."""
    job_offers = chosen_offers(request, plan)
    if not job_offers:
        return None
    longest_h = max(job_offer.cost.high.hours for job_offer in job_offers) * _RUNTIME
    runtime_h = ceil(longest_h if plan.spec.within_s is None else plan.spec.within_s / 3600)
    reserved = max(job_offer.price.price_microusd_hour for job_offer in job_offers) / MICRO * runtime_h
    tables = {
        "[[watch]]": offer_clauses(name, request, plan, job_offers),
        "[watch.job]": _job(request, plan.spec),
        "[watch.job.tokens_per_s]": dict(_speeds(plan.spec, job_offers)),
        "[watch.launch]": {"max_runtime": f"{runtime_h}h"},
        "[watch.budget]": {"max_usd_month": ceil(reserved), "max_instances": 1},
    }
    return watch_toml(tables)


def add_watch(config: str | None, name: str, watch: str) -> Path:
    """Append a watch to the settings file, if the settings are valid with it.

    Raises:
        UsageError: there is no settings file, or it has a watch of that name.
        SettingsError: the settings would be invalid; one line per error.
        GpuwatchError: the file cannot be written.
    """
    sources = collect(config)
    if sources.file is None:
        raise UsageError("there is no settings file to add a watch to; create one with: gpuwatch init")
    if name in {watch.name for watch in load_settings(config).watches}:
        raise UsageError(f"--watch {name!r}: {sources.display_name} already has a watch of that name; choose another")
    content = sources.content.rstrip() + b"\n\n" + watch.encode()
    load_settings(config, content=content)
    target = sources.file.resolve()
    try:
        with atomic_file(target, mode=target.stat().st_mode & 0o777, is_durable=True) as part:
            part.write_bytes(content)
    except OSError as error:
        raise GpuwatchError(f"cannot write {target}: {error.strerror}") from None
    return sources.file


def chosen_offers(request: JobRequest, plan: OfferPlan) -> list[JobOffer]:
    """The offers on which the job is cheapest: feasible ones, else those that a lower price would make feasible."""
    max_cost_usd = None if request.max_cost_usd is None else request.max_cost_usd + request.credit
    by_verdict: dict[Feasibility, list[JobOffer]] = {verdict: [] for verdict in Feasibility}
    for job_offer in plan.ranking.placed:
        if not job_offer.is_doubtful:
            by_verdict[feasibility(job_offer.cost, max_cost_usd, plan.spec.within_s)].append(job_offer)
    candidates = by_verdict[Feasibility.FEASIBLE] or by_verdict[Feasibility.UNCERTAIN]
    gpus = list(dict.fromkeys(job_offer.offer.gpu for job_offer in candidates))[:_MAX_GPUS]
    return [job_offer for job_offer in candidates if job_offer.offer.gpu in gpus]


def offer_clauses(name: str, request: JobRequest, plan: OfferPlan, job_offers: Sequence[JobOffer]) -> dict[str, Any]:
    counts = [job_offer.offer.gpu_count for job_offer in job_offers]
    memory_gib = [
        job_offer.offer.gpu_memory_gib for job_offer in job_offers if job_offer.offer.gpu_memory_gib is not None
    ]
    best = job_offers[0].cost.high
    other_usd = best.labour_usd + best.prepare_usd  # a watch considers only the machine
    max_cost_usd = (
        max(job_offer.cost.microusd for job_offer in job_offers) / MICRO
        if request.max_cost_usd is None
        else request.max_cost_usd
    )
    return _without_none({
        "name": name,
        "gpu": list(dict.fromkeys(job_offer.offer.gpu for job_offer in job_offers)),
        "gpu_count": {"min": min(counts), "max": max(counts)},
        "max_job_cost": round(max(0.01, max_cost_usd + request.credit - other_usd), 2),
        "providers": list(request.provider) or None,
        "spot": None if request.spot == "no" else request.spot,
        "disk_gb": None if plan.needs.disk_gb is None else ceil(plan.needs.disk_gb),
        "download_gb": ceil(plan.needs.traffic.download_gb) or None,
        "upload_gb": ceil(plan.needs.traffic.upload_gb) or None,
        "min_vram_gib": floor(min(memory_gib) * MEMORY) if memory_gib else None,
        **host_clauses([job_offer.offer.provider for job_offer in job_offers], job_offers[0].offer.reliability),
        "verified": request.verified or None,
    })  # fmt: skip


def host_clauses(provider_names: Sequence[str], best: float | None) -> dict[str, Any]:
    """The required quality of hosts. A provider with its own machines states no reliability, so none is required.

    Args:
        provider_names: the providers of the chosen offers.
        best: the reliability of the cheapest of these offers.
    """
    min_reliability = RELIABILITY if best is None else min(RELIABILITY, floor(best * 100) / 100)
    if not unrated_providers(provider_names):
        return {"min_reliability": min_reliability}
    rated = [name for name in providers.names() if providers.info(name).rates_hosts]
    return {"any": [f"reliability >= {min_reliability}", f"provider not in ({', '.join(map(json.dumps, rated))})"]}


def unrated_providers(names: Sequence[str]) -> list[str]:
    """The providers whose offers never state the reliability of a host."""
    provider_names = set(providers.names())
    return [name for name in dict.fromkeys(names) if name in provider_names and not providers.info(name).rates_hosts]


def _job(request: JobRequest, spec: JobSpec) -> dict[str, Any]:
    """The keys of `[watch.job]` as given, and the figures that the plan took from elsewhere."""
    work = request.workload
    model = named_model(work)
    fields = dict(request.job)
    if model is not None:
        fields |= {"model": model.params if isinstance(model, LanguageModel) else model}
        fields |= {key: value for key in _OF_WORKLOAD if (value := getattr(work, key)) is not None}
        fields.setdefault("memory_gb", round(spec.memory_gb, 1))
    if spec.tokens is not None:
        fields["tokens"] = spec.tokens
    if request.preloaded:
        fields.pop("image_gb", None)
    fields.setdefault("load", f"{max(1, floor(spec.load_s.low))}s-{max(1, ceil(spec.load_s.high))}s")
    return _without_none(fields)


def _speeds(spec: JobSpec, job_offers: Sequence[JobOffer]) -> Iterator[tuple[str, str]]:
    """Tokens a second by number and GPU, as estimated by the plan, because a watch has no table of measurements."""
    if spec.speed is None:
        return
    offered = {job_offer.offer.gpu_count for job_offer in job_offers}
    counts = sorted(offered | {count for count in _COUNTS if min(offered) <= count <= max(offered)})
    for gpu in dict.fromkeys(job_offer.offer.gpu for job_offer in job_offers):
        for count in counts:
            hours = list(_work_hours(spec, gpu, count, job_offers))
            if hours:
                slow, fast = max(range_.high for range_ in hours), min(range_.low for range_ in hours)
                per_h = (spec.tokens or 0.0) / 3600
                yield f"{count}x {gpu}", f"{per_h / slow:.1f}-{per_h / fast:.1f}"


def _work_hours(spec: JobSpec, gpu: str, count: int, job_offers: Sequence[JobOffer]) -> Iterator[FigureRange]:
    """Whether NVLink joins the GPUs: from the offers if known, else from the data sheet."""
    costs = [
        job_offer.cost for job_offer in job_offers if (job_offer.offer.gpu, job_offer.offer.gpu_count) == (gpu, count)
    ]
    yield from (FigureRange(cost.low.work_h, cost.high.work_h) for cost in costs)
    if not costs and not isinstance(hours := hours_on(spec, gpu, count), str):
        yield hours.value


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


# --- TOML -------------------------------------------------------------------------------------------------------------


def watch_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables of a watch by their headers; empty tables, and keys without a value, are left out."""
    tables_ = {head: _without_none(fields) for head, fields in tables.items()}
    return "\n\n".join("\n".join((head, *_lines(fields))) for head, fields in tables_.items() if fields) + "\n"


def _lines(fields: Mapping[str, Any]) -> Iterator[str]:
    width = max(len(_key(key)) for key in fields)
    return (f"{_key(key):<{width}} = {toml_value(value)}" for key, value in fields.items())


def toml_value(value: Any) -> str:
    """A TOML value; JSON's strings are also TOML's."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    number = float(value)
    return f"{number:.0f}" if number.is_integer() else f"{number:.10g}"


def _key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else json.dumps(key, ensure_ascii=False)
