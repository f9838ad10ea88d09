"""The `[[watch]]` for a plan: the job or the GPUs that hold the work, its limit, its disk, and the quality of hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from math import ceil, floor, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuwatch import providers
from gpuwatch.app.plan.plan_fit import disk_gb
from gpuwatch.app.plan.plan_job import OfferPlan
from gpuwatch.atomic_file import atomic_file
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.launches.launch import disk_microusd_hour
from gpuwatch.domain.launches.money.launch_costs import END_PROVEN_S
from gpuwatch.domain.market.money import MICRO, dollars
from gpuwatch.domain.market.offer import Offer, OfferKind, clean
from gpuwatch.domain.plan.architectures.language_models import LanguageModel
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.plan.job_comparison import Feasibility, JobOffer, feasibility
from gpuwatch.domain.plan.job_hours import data_of, hours_on
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.settings.sources import collect

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_fit import FitPlan
    from gpuwatch.domain.jobs.job_request import JobRequest
    from gpuwatch.domain.plan.fit import PricedClass
    from gpuwatch.domain.plan.job_hours import JobSpec
    from gpuwatch.domain.plan.memory_need import CardFit, MemoryNeed
    from gpuwatch.domain.plan.plan_schema import FitRequest


_MAX_GPUS: Final = 4  # GPU models in one watch: the cheapest for this job
_COUNTS: Final = (1, 2, 4, 8)  # GPU counts that later offers may have
RELIABILITY: Final = 0.95  # assumed requirement, unless the cheapest fitting offer has a lower one
MEMORY: Final = 0.97  # providers state the memory of the same card differently: 23.99 and 24 GiB
LIMIT: Final = 1.5  # assumed ratio of a limit to the cost on the cheapest offer, if no maximum cost is given
_RUNTIME: Final = 1.25  # assumed ratio of `max_runtime` to the longest planned hours
_FIRST_KEYS: Final = ("name", "gpu", "gpu_count", "max_job_cost")


def implied_watch(name: str, request: JobRequest, plan: OfferPlan) -> str | None:
    """The `[[watch]]` as TOML; None: the job is feasible on no offer."""
    limits = _limits(request, plan)
    if limits is None:
        return None
    job_offers, max_runtime = limits.job_offers, _runtime_text(limits.runtime_s)
    watch = {"name": name, **offer_clauses(request, plan, job_offers), "max_job_cost": limits.job_cost_usd}
    tables = {
        "[[watch]]": {key: watch[key] for key in (*_FIRST_KEYS, *watch) if key in watch},
        "[watch.job]": _job(request, plan.spec) | {"within": max_runtime},
        "[watch.job.tokens_per_s]": dict(_speeds(plan.spec, job_offers)),
        "[watch.launch]": {"max_runtime": max_runtime},
        "[watch.budget]": {"max_usd_month": limits.budget_usd, "max_instances": 1},
    }
    return "".join(f"# {line}\n" for line in _basis(request, limits)) + watch_toml(tables)


class _WatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a watch, and the offers that they fit, the recommended one first."""

    job_offers: Sequence[JobOffer]
    is_feasible: bool
    job_cost_usd: float
    runtime_s: float
    budget_usd: float


def _limits(request: JobRequest, plan: OfferPlan) -> _WatchLimits | None:
    """Limits that follow from the cheapest offer, and from the maximum cost if one is given; None: no offer."""
    job_offers = chosen_offers(request, plan)
    if not job_offers:
        return None
    best = job_offers[0].cost
    other_usd = best.high.labour_usd + best.high.prepare_usd  # a watch considers only the machine
    job_usd = best.microusd / MICRO - other_usd
    limit_usd = _rounded_up(LIMIT * job_usd)
    if request.max_usd is not None:
        limit_usd = max(0.01, floor((request.max_usd - other_usd) * 100 + 1e-6) / 100)
    beyond_usd = _beyond_runtime_s(job_offers[0]) * _dearest_usd_hour(job_offers[:1]) / 3600
    budget_usd = _rounded_up(max(_RUNTIME * limit_usd, limit_usd + beyond_usd))
    room_s = {id(one): budget_usd * 3600 / _dearest_usd_hour([one]) - _beyond_runtime_s(one) for one in job_offers}
    within_s, runtime_s = plan.spec.within_s, _RUNTIME * _longest_s(job_offers)
    if within_s is not None and within_s <= room_s[id(job_offers[0])]:
        runtime_s = within_s
        job_offers = [one for one in job_offers if within_s <= room_s[id(one)]]
    else:
        job_offers = offers_under_one_limit(job_offers, max(limit_usd, job_usd))
        longest_s = _longest_s(job_offers)
        job_offers = [job_offers[0], *(one for one in job_offers[1:] if longest_s <= room_s[id(one)])]
        runtime_s = min(_RUNTIME * _longest_s(job_offers), within_s or inf, *(room_s[id(one)] for one in job_offers))
    return _WatchLimits(
        job_offers=job_offers,
        is_feasible=job_usd <= limit_usd + 1e-6,
        job_cost_usd=limit_usd,
        runtime_s=floor(runtime_s / 60) * 60 if runtime_s >= 7200 else floor(runtime_s),
        budget_usd=budget_usd,
    )


def _beyond_runtime_s(one: JobOffer) -> float:
    """Seconds at the offer's price that a budget reserves beyond `max_runtime`: for its start, and its end's proof."""
    disk = disk_microusd_hour(Match(one.offer, one.price), None)
    return END_PROVEN_S + LaunchSpec().ready_within_s * disk / max(1, one.price.listed_microusd_hour)


def offers_under_one_limit(job_offers: Sequence[JobOffer], limit_usd: float, beyond_s: float = 0.0) -> list[JobOffer]:
    """The offers, cheapest first, of which the dearest stays under the limit even for the longest hours of all.

    A fast and expensive offer, or a slow one, that would push a common limit far above the cost of the cheapest job is
    left out. The first one is always kept.
    """
    kept = list(job_offers[:1])
    for job_offer in job_offers[1:]:
        more = [*kept, job_offer]
        if are_under_one_limit(more, limit_usd, beyond_s):
            kept = more
    return kept


def are_under_one_limit(job_offers: Sequence[JobOffer], limit_usd: float, beyond_s: float = 0.0) -> bool:
    """Whether the dearest costs no more for the longest hours of all, and for this many seconds beyond them."""
    return _dearest_usd_hour(job_offers) * (_longest_s(job_offers) + beyond_s) / 3600 <= limit_usd


def _dearest_usd_hour(job_offers: Sequence[JobOffer]) -> float:
    return max(job_offer.price.price_microusd_hour for job_offer in job_offers) / MICRO


def _longest_s(job_offers: Sequence[JobOffer]) -> float:
    return max(job_offer.cost.high.hours for job_offer in job_offers) * 3600


def _rounded_up(usd: float) -> float:
    """To cents, or to a hundredth of a cent if a cent would be much."""
    parts = 100 if usd >= 1 else 10_000
    return max(1, ceil(usd * parts - 1e-6)) / parts


def _runtime_text(seconds: float) -> str:
    """In the largest unit, up to hours, that needs no fraction."""
    unit, size = next((unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if not seconds % size)
    return f"{seconds / size:.0f}{unit}"


def _basis(request: JobRequest, limits: _WatchLimits) -> Iterator[str]:
    """What the limits follow from, as lines for a comment."""
    best = limits.job_offers[0]
    where = f"{best.offer.gpu_count}× {clean(best.offer.gpu)} at {clean(best.offer.provider)}"
    verdict = "the job costs" if limits.is_feasible else "not feasible yet: the job costs"
    yield f"Cheapest offer: {where}, where {verdict} {dollars(best.cost.microusd / MICRO)} in the worst case."
    given = "as given" if request.max_usd is not None else f"{LIMIT:g} times that, for the machine alone"
    yield f"max_job_cost: {given}; max_usd_month: one run of max_runtime with its start and end."


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
    """The offers on which the job is cheapest: feasible ones, else those that a lower price would make feasible.

    Only those that one watch accepts: the rating of a host that the cheapest has, and the disk in whole GB.
    """
    by_verdict: dict[Feasibility, list[JobOffer]] = {verdict: [] for verdict in Feasibility}
    for job_offer in plan.ranking.placed:
        if not job_offer.is_doubtful:
            by_verdict[feasibility(job_offer.cost, request.max_usd, plan.spec.within_s)].append(job_offer)
    candidates = by_verdict[Feasibility.FEASIBLE] or by_verdict[Feasibility.UNCERTAIN]
    candidates = [job_offer for job_offer in candidates if _is_as_good(plan, job_offer.offer, candidates[0].offer)]
    gpus = list(dict.fromkeys(job_offer.offer.gpu for job_offer in candidates))[:_MAX_GPUS]
    return [job_offer for job_offer in candidates if job_offer.offer.gpu in gpus]


def _is_as_good(plan: OfferPlan, offer: Offer, best: Offer) -> bool:
    """Does the offer meet the floor of `host_clauses` that follows from the best one?"""
    floor_ = reliability_floor(best, is_polled=plan.market.is_polled)
    if floor_ is None or unrated_providers([offer.provider]):
        return True
    return not plan.market.is_polled if offer.reliability is None else offer.reliability >= floor_


def offer_clauses(request: JobRequest, plan: OfferPlan, job_offers: Sequence[JobOffer]) -> dict[str, Any]:
    """The keys of a watch that accept these offers, the recommended one first."""
    offers = [job_offer.offer for job_offer in job_offers]
    counts = [offer.gpu_count for offer in offers]
    memory_gib = [offer.gpu_memory_gib for offer in offers if offer.gpu_memory_gib is not None]
    return _without_none({
        "gpu": list(dict.fromkeys(offer.gpu for offer in offers)),
        "gpu_count": {"min": min(counts), "max": max(counts)},
        "providers": list(request.provider) or None,
        "spot": None if request.spot == "no" else request.spot,
        "listed": any(offer.kind is OfferKind.LISTED for offer in offers) or None,
        "disk_gb": plan.needs.disk_gb,
        "download_gb": ceil(plan.needs.traffic.download_gb) or None,
        "upload_gb": ceil(plan.needs.traffic.upload_gb) or None,
        "min_vram_gib": floor(min(memory_gib) * MEMORY) if len(memory_gib) == len(offers) else None,
        **host_clauses(
            [offer.provider for offer in offers], reliability_floor(offers[0], is_polled=plan.market.is_polled)
        ),
        "verified": request.verified or None,
        "when": request.when,
    })  # fmt: skip


def reliability_floor(offer: Offer | PricedClass, *, is_polled: bool) -> float | None:
    """The reliability to require, so that this offer has it; None: none, because its provider has not rated the host.

    Recorded prices do not always state it: then the usual floor counts.
    """
    if offer.reliability is not None:
        return min(RELIABILITY, floor(offer.reliability * 100) / 100)
    is_unrated_host = is_polled and not unrated_providers([offer.provider or ""])
    return None if is_unrated_host else RELIABILITY


def host_clauses(provider_names: Sequence[str], min_reliability: float | None) -> dict[str, Any]:
    """The required quality of hosts. A provider with its own machines states no reliability, so none is required.

    Args:
        provider_names: the providers of the chosen offers.
        min_reliability: see `reliability_floor`.
    """
    if min_reliability is None:
        return {}
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
    fields = dict(request.written)
    if (model := fields.pop("model", None)) is not None:
        fields["model"] = model.params if isinstance(model, LanguageModel) else model
        stated = {key: fields.pop(key, None) for key in ("method", "precision")}
        fields |= stated | {key: getattr(request, key) for key in ("optimizer", "batch", "context")}
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
                yield f"{count}x {gpu}", f"{_tokens_s(per_h / slow)}-{_tokens_s(per_h / fast)}"


def _tokens_s(rate: float) -> str:
    """To one decimal; small rates to four digits."""
    return f"{rate:.1f}" if rate >= 1000 else f"{rate:.4g}"


def _work_hours(spec: JobSpec, gpu: str, count: int, job_offers: Sequence[JobOffer]) -> Iterator[FigureRange]:
    """The hours of work on these GPUs: of the offers that have them, else as computed for the card."""
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


# --- the watch for `plan fit` and `plan size` -------------------------------------------------------------------------

_STEP: Final = Decimal("0.0001")  # limits are rounded up to it, so that the current offer stays under its own limit


def fit_watch(name: str, request: FitRequest, plan: FitPlan) -> str | None:
    """The best class at its current price, as TOML; None: no class with a plausible price fits."""
    best = next((choice for choice in plan.ranked.choices if not choice.too_cheap), None)
    if best is None:
        return None
    priced = best.priced
    memory_gib = best.gpu.memory_gib if priced.provider is None else priced.memory_gib
    clauses = {
        "name": name,
        "gpu": best.gpu.name,
        "gpu_count": _counts(best.needed, max(best.needed, priced.cards)),
        "max_price": (best.usd_hour / priced.cards).quantize(_STEP, ROUND_CEILING),
        "providers": [request.provider.removesuffix(":listed")] if request.provider else None,
        "spot": "only" if priced.spot else None,
        "listed": priced.listed or None,
        "disk_gb": disk_gb(request),
        "min_vram_gib": None if memory_gib is None else floor(memory_gib * MEMORY),
        **host_clauses([priced.provider or ""], reliability_floor(priced, is_polled=request.poll)),
        "when": request.when,
    }
    return watch_toml({"[[watch]]": clauses})


def size_watch(name: str, needed: MemoryNeed, card_fits: Sequence[CardFit], max_price: float) -> str:
    """The cards without reasons against them that hold the work in the smallest number, as TOML. Raises UsageError."""
    good = [card_fit for card_fit in card_fits if not card_fit.against]
    if not good:
        raise UsageError(f"--watch {name!r}: no card holds it without a caveat; use --gpu, or plan fit")
    cards = [card_fit for card_fit in good if card_fit.cards == good[0].cards]
    clauses: dict[str, Any] = {
        "name": name,
        "gpu": [card_fit.gpu.name for card_fit in cards],
        "gpu_count": cards[0].cards,
        "max_price": max_price,
        "disk_gb": ceil(data_of(needed.workload, None).disk_gb),
        "min_vram_gib": floor(min(card_fit.gpu.memory_gib for card_fit in cards) * MEMORY),
        **host_clauses(providers.names(), RELIABILITY),
    }
    return watch_toml({"[[watch]]": clauses})


def _counts(min_count: int, max_count: int) -> int | dict[str, int]:
    return min_count if min_count == max_count else {"min": min_count, "max": max_count}
