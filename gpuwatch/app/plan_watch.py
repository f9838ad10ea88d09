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

_MOST_GPUS: Final = 4  # GPU models in one watch: the cheapest for this job
_COUNTS: Final = (1, 2, 4, 8)  # GPU counts that later offers may have
RELIABILITY: Final = 0.95  # assumed requirement, unless the cheapest fitting offer has a lower one
MEMORY: Final = 0.97  # providers state the memory of the same card differently: 23.99 and 24 GiB
_RUNTIME: Final = 1.25  # assumed ratio of `max_runtime` to the longest planned hours
_OF_WORKLOAD: Final = ("method", "precision", "optimizer", "batch", "context")


def implied_watch(name: str, request: JobRequest, plan: OfferPlan) -> str | None:
    """The `[[watch]]` as TOML; None: the job is feasible on no offer."""
    chosen = chosen_offers(request, plan)
    if not chosen:
        return None
    longest_h = max(one.cost.high.hours for one in chosen) * _RUNTIME
    runtime_h = ceil(longest_h if plan.spec.within_s is None else plan.spec.within_s / 3600)
    reserved = max(one.price.price_microusd_hour for one in chosen) / MICRO * runtime_h
    tables = {
        "[[watch]]": offer_clauses(name, request, plan, chosen),
        "[watch.job]": _job(request, plan.spec),
        "[watch.job.tokens_per_s]": dict(_speeds(plan.spec, chosen)),
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
    if name in {one.name for one in load_settings(config).watches}:
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
    most = None if request.max_cost_usd is None else request.max_cost_usd + request.credit
    found: dict[Feasibility, list[JobOffer]] = {one: [] for one in Feasibility}
    for one in plan.ranking.placed:
        if not one.is_doubtful:
            found[feasibility(one.cost, most, plan.spec.within_s)].append(one)
    fitting = found[Feasibility.FEASIBLE] or found[Feasibility.UNCERTAIN]
    gpus = list(dict.fromkeys(one.offer.gpu for one in fitting))[:_MOST_GPUS]
    return [one for one in fitting if one.offer.gpu in gpus]


def offer_clauses(name: str, request: JobRequest, plan: OfferPlan, chosen: Sequence[JobOffer]) -> dict[str, Any]:
    counts = [one.offer.gpu_count for one in chosen]
    memory_gib = [one.offer.gpu_memory_gib for one in chosen if one.offer.gpu_memory_gib is not None]
    best = chosen[0].cost.high
    beside = best.labour_usd + best.prepare_usd  # a watch considers only the machine
    most = max(one.cost.microusd for one in chosen) / MICRO if request.max_cost_usd is None else request.max_cost_usd
    return _without_none({
        "name": name,
        "gpu": list(dict.fromkeys(one.offer.gpu for one in chosen)),
        "gpu_count": {"min": min(counts), "max": max(counts)},
        "max_job_cost": round(max(0.01, most + request.credit - beside), 2),
        "providers": list(request.provider) or None,
        "spot": None if request.spot == "no" else request.spot,
        "disk_gb": None if plan.needs.disk_gb is None else ceil(plan.needs.disk_gb),
        "download_gb": ceil(plan.needs.traffic.download_gb) or None,
        "upload_gb": ceil(plan.needs.traffic.upload_gb) or None,
        "min_vram_gib": floor(min(memory_gib) * MEMORY) if memory_gib else None,
        **host_clauses([one.offer.provider for one in chosen], chosen[0].offer.reliability),
        "verified": request.verified or None,
    })  # fmt: skip


def host_clauses(named: Sequence[str], best: float | None) -> dict[str, Any]:
    """The required quality of hosts. A provider with its own machines states no reliability, so none is required.

    Args:
        named: the providers of the chosen offers.
        best: the reliability of the cheapest of these offers.
    """
    least = RELIABILITY if best is None else min(RELIABILITY, floor(best * 100) / 100)
    if not unrated_providers(named):
        return {"min_reliability": least}
    rated = [name for name in providers.names() if providers.info(name).rates_hosts]
    return {"any": [f"reliability >= {least}", f"provider not in ({', '.join(map(json.dumps, rated))})"]}


def unrated_providers(named: Sequence[str]) -> list[str]:
    """The providers whose offers never state the reliability of a host."""
    known = set(providers.names())
    return [name for name in dict.fromkeys(named) if name in known and not providers.info(name).rates_hosts]


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


def _speeds(spec: JobSpec, chosen: Sequence[JobOffer]) -> Iterator[tuple[str, str]]:
    """Tokens a second by number and GPU, as estimated by the plan, because a watch has no table of measurements."""
    if spec.speed is None:
        return
    offered = {one.offer.gpu_count for one in chosen}
    counts = sorted(offered | {count for count in _COUNTS if min(offered) <= count <= max(offered)})
    for gpu in dict.fromkeys(one.offer.gpu for one in chosen):
        for count in counts:
            found = list(_work_hours(spec, gpu, count, chosen))
            if found:
                slow, fast = max(one.high for one in found), min(one.low for one in found)
                per_h = (spec.tokens or 0.0) / 3600
                yield f"{count}x {gpu}", f"{per_h / slow:.1f}-{per_h / fast:.1f}"


def _work_hours(spec: JobSpec, gpu: str, count: int, chosen: Sequence[JobOffer]) -> Iterator[FigureRange]:
    """Whether NVLink joins the GPUs: from the offers if known, else from the data sheet."""
    costs = [one.cost for one in chosen if (one.offer.gpu, one.offer.gpu_count) == (gpu, count)]
    yield from (FigureRange(cost.low.work_h, cost.high.work_h) for cost in costs)
    if not costs and not isinstance(found := hours_on(spec, gpu, count), str):
        yield found.value


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


# --- TOML -------------------------------------------------------------------------------------------------------------


def watch_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables of a watch by their headers; empty tables, and keys without a value, are left out."""
    given = {head: _without_none(fields) for head, fields in tables.items()}
    return "\n\n".join("\n".join((head, *_lines(fields))) for head, fields in given.items() if fields) + "\n"


def _lines(fields: Mapping[str, Any]) -> Iterator[str]:
    width = max(len(_key(key)) for key in fields)
    return (f"{_key(key):<{width}} = {toml_value(value)}" for key, value in fields.items())


def toml_value(value: Any) -> str:
    """A TOML value; JSON's strings are also TOML's."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {toml_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(one) for one in value) + "]"
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    number = float(value)
    return f"{number:.0f}" if number.is_integer() else f"{number:.10g}"


def _key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else json.dumps(key, ensure_ascii=False)
