"""JSON of `gpuwatch plan job`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuwatch.app.market.offers import offer_view
from gpuwatch.app.plan.plan_job import after_credit, job_verdict, loading_cost
from gpuwatch.domain.market.figure_text import percent_text
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.market.money import MICRO, dollars, per_hour, usd
from gpuwatch.domain.plan.job_total import JOB_COST_METHOD_TEXT, JobCost

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_job import HardwarePlan, JobNeeds, OfferPlan
    from gpuwatch.domain.jobs.job_request import JobRequest
    from gpuwatch.domain.plan.job_comparison import ComparedHardware


def hardware_sentence(plan: HardwarePlan) -> str:
    """The cheapest of the named cards in one plain sentence."""
    best = min(plan.compared, key=lambda hardware: hardware.cost.microusd)
    text = f"{best.candidate.on.text} is the cheapest: {_cost_text(best.cost)}"
    dearest = max(hardware.cost.microusd for hardware in plan.compared)
    if len(plan.compared) == 1:
        text = f"{best.candidate.on.text}: {_cost_text(best.cost)}"
    elif dearest > best.cost.microusd:
        saved = percent_text(1 - best.cost.microusd / dearest, 0)
        text += f", {saved} less than the dearest"
    return f"{text}."


def offers_sentence(plan: OfferPlan) -> str | None:
    """The cheapest offer for the job in one plain sentence; None: the job fits no offer."""
    if not plan.ranking.placed:
        return None
    best = plan.ranking.placed[0]
    gpus = f"{best.offer.gpu_count}× {best.offer.gpu}"
    price = per_hour(usd(best.price.price_microusd_hour))
    return f"{gpus} at {best.offer.provider} for {price} is the cheapest: {_cost_text(best.cost)}."


def _cost_text(cost: JobCost) -> str:
    low, high = dollars(usd(cost.low.microusd)), dollars(usd(cost.microusd))
    low_h, high_h = f"{cost.low.hours:,.1f}", f"{cost.high.hours:,.1f}"
    amount = high if low == high else f"{low} to {high}"
    return f"{amount} for the job, in {high_h if low_h == high_h else f'{low_h} to {high_h}'} h"


def hardware_plan_json(request: JobRequest, plan: HardwarePlan) -> dict[str, Any]:
    """JSON of `gpuwatch plan job` for named hardware."""
    return {
        "sentence": hardware_sentence(plan),
        "method": JOB_COST_METHOD_TEXT,
        "feasible": job_verdict(request, plan.spec, [hardware.cost for hardware in plan.compared]),
        **_needs_json(plan.needs),
        "candidates": [_compared_json(request, plan, hardware) for hardware in plan.compared],
    }


def _compared_json(request: JobRequest, plan: HardwarePlan, hardware: ComparedHardware) -> dict[str, Any]:
    return {
        "cards": hardware.candidate.on.text,
        "gpu": hardware.priced_gpus.gpu,
        "gpu_count": hardware.priced_gpus.count,
        "price_usd_hour": hardware.priced_gpus.microusd_hour / MICRO,
        "warning": hardware.candidate.warning,
        "difference_usd": (hardware.cost.microusd - plan.compared[0].cost.microusd) / MICRO,
        "break_even_speedup": round(hardware.break_even, 6),
        "speedup": list(hardware.speed),
        **_loading_json(request, plan.needs, hardware.priced_gpus.microusd_hour),
        "after_credit_usd": after_credit(hardware.cost, request),
        **_cost_json(hardware.cost),
    }


def _loading_json(request: JobRequest, needs: JobNeeds, microusd_hour: int) -> dict[str, Any]:
    """Loading the model once, and with its files on the machine; null: the time is unknown."""
    loading = loading_cost(request, needs, microusd_hour)
    return {
        "load_usd": None if loading is None else list(loading.once),
        "cached_load_usd": None if loading is None or loading.cached is None else list(loading.cached),
    }


def _cost_json(cost: JobCost) -> dict[str, Any]:
    """The cost of a job, in the worst case by parts; more keys may follow."""
    high = cost.high
    return {
        "job_cost_usd": cost.microusd / MICRO,
        "job_cost_low_usd": cost.low.microusd / MICRO,
        "hours": high.hours,
        "hours_low": cost.low.hours,
        "hours_from": cost.how,
        "interruptions": high.interruptions,
        "work_usd": high.usd_for(high.work_h),
        "ready_usd": high.usd_for(high.ready_h),
        "restarts_usd": high.usd_for(high.restart_h + high.lost_h),
        "least_billing_usd": high.usd_for(high.minimum_h),
        "traffic_usd": high.traffic_usd,
        "disk_usd": high.disk_usd,
        "labour_usd": high.labour_usd,
        "prepare_usd": high.prepare_usd,
        "debug_usd": high.usd_for(high.debug_h),
        "preparation_share": high.preparation_share,
        "unknown": list(cost.unknown),
    }


def offer_plan_json(request: JobRequest, plan: OfferPlan) -> dict[str, Any]:
    """JSON of `gpuwatch plan job` for offers, cheapest job first."""
    as_of = rfc3339(plan.market.as_of)
    return {
        "sentence": offers_sentence(plan),
        "method": JOB_COST_METHOD_TEXT,
        "samples": plan.ranking.seen,
        "since": as_of,
        "until": as_of,
        "source": plan.market.source,
        "feasible": job_verdict(request, plan.spec, plan.costs),
        **_needs_json(plan.needs),
        "offers": [
            offer_view(job_offer.offer, job_offer.price).json()
            | _cost_json(job_offer.cost)
            | _loading_json(request, plan.needs, job_offer.price.price_microusd_hour)
            | {
                "after_credit_usd": after_credit(job_offer.cost, request),
                "too_cheap": job_offer.too_cheap,
                "chance_to_finish": job_offer.chance,
                "unlikely": job_offer.is_unlikely,
            }
            for job_offer in plan.ranking.placed[: request.limit]
        ],
        "refused": [{"reason": reason, "offers": count} for reason, count in plan.ranking.refused],
    }


def _needs_json(needs: JobNeeds) -> dict[str, Any]:
    """The data that the job moves and stores; `derived`: computed from the model, as the owner did not state it."""
    return {
        "download_gb": needs.traffic.download_gb,
        "disk_gb": needs.disk_gb,
        "load_s": list(needs.load_s),
        "derived": list(needs.derived),
    }
