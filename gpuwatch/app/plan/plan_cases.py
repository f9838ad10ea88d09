"""Common kinds of work on current offers: the best provider for each case, and training and inference split up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuwatch.app.market.current_offers import CurrentOffers, current_offers
from gpuwatch.app.market.offers import offer_view
from gpuwatch.app.plan.speed_table import throughput_table
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.plan.architectures.language_models import model_of
from gpuwatch.domain.plan.job_comparison import JobOffer, rank_offers
from gpuwatch.domain.plan.job_hours import JobSpec, data_of
from gpuwatch.domain.plan.job_total import JobTraffic
from gpuwatch.domain.plan.memory_need import memory_need
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.domain.plan.throughput import speed_of
from gpuwatch.domain.plan.workload import Workload
from gpuwatch.engine.market.browse import offer_filter
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_POLL_S = 60.0


class WorkCase(msgspec.Struct, frozen=True):
    """A common kind of work. `tokens`: tokens trained on, or generated."""

    name: str
    work: Workload
    tokens: float


class CaseOffers(msgspec.Struct, frozen=True):
    """A case with the cheapest offer of each provider, cheapest first."""

    case: WorkCase
    best: tuple[JobOffer, ...]


class HybridPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Training and inference, each on its cheapest offer, and both on one offer. None: nothing fits."""

    train: JobOffer | None
    infer: JobOffer | None
    both: tuple[JobOffer, JobOffer] | None  # the same offer, for each part

    @property
    def separate_usd(self) -> float | None:
        """The total in the worst case, each on its cheapest offer."""
        return None if self.train is None or self.infer is None else (_usd(self.train) + _usd(self.infer))

    @property
    def combined_usd(self) -> float | None:
        """The total in the worst case, both on one offer."""
        return None if self.both is None else _usd(self.both[0]) + _usd(self.both[1])


def _case(name: str, size: str, method: TrainingMethod, tokens: float, **more: Any) -> WorkCase:
    return WorkCase(name, Workload(model=model_of(size), method=method, **more), tokens)


def usual_cases() -> Sequence[WorkCase]:
    """The cases of the table; sizes and tokens are examples."""
    inference = TrainingMethod.INFERENCE
    return (
        _case("fine-tune 8B (QLoRA), 100M tokens", "8B", TrainingMethod.QLORA, 100e6, batch=2),
        _case("fine-tune 70B (QLoRA), 100M tokens", "70B", TrainingMethod.QLORA, 100e6, batch=4),
        _case("train all of 8B, 1B tokens", "8B", TrainingMethod.FULL, 1e9, batch=8),
        _case("answer with 8B, 1B tokens, 32 at once", "8B", inference, 1e9, batch=32),
        _case("answer with 70B in 4 bits, 1B tokens, 16 at once", "70B", inference, 1e9, **_FOUR_BITS),
    )


_FOUR_BITS: Final[dict[str, Any]] = {"batch": 16, "precision": Precision.INT4}


def market_of(
    settings: Settings, *, providers: Sequence[str], spot: bool, poll: bool, data: Path | None
) -> CurrentOffers:
    """The offers to compare. Raises UsageError, StoreError."""
    if poll and data is not None:
        raise UsageError("use either --poll or --data")
    live_offers = offer_filter((), spot="only" if spot else "no", kind="live")
    return current_offers(settings, live_offers, providers, data, _POLL_S if poll else None)


def ranked_offers(market: CurrentOffers, work: Workload, tokens: float) -> tuple[JobOffer, ...]:
    """The plausible offers that hold a piece of work, cheapest job first."""
    needs = data_of(work, tokens if work.trains else None)
    spec = JobSpec(
        tokens=tokens,
        speed=speed_of(work, throughput_table()),
        bf16=work.precision is Precision.BF16,
        memory_gb=memory_need(work).gb,
        load_s=needs.load_s,
    )
    ranking = rank_offers(spec, market.offers, JobTraffic(needs.download_gb), needs.disk_gb)
    return tuple(job_offer for job_offer in ranking.placed if not job_offer.is_doubtful)


def plan_cases(market: CurrentOffers) -> list[CaseOffers]:
    """The cheapest offer of each provider for each case."""
    case_offers = []
    for case in usual_cases():
        best: dict[str, JobOffer] = {}
        for job_offer in ranked_offers(market, case.work, case.tokens):
            best.setdefault(job_offer.offer.provider, job_offer)
        case_offers.append(CaseOffers(case, tuple(best.values())))
    return case_offers


def plan_hybrid(market: CurrentOffers, train: WorkCase, infer: WorkCase) -> HybridPlan:
    """Compare training and inference on separate offers with both on one offer."""
    trained, inferred = (ranked_offers(market, case.work, case.tokens) for case in (train, infer))
    inferred_by_id = {job_offer.offer.offer_id: job_offer for job_offer in inferred}
    both = [
        (job_offer, inferred_by_id[job_offer.offer.offer_id])
        for job_offer in trained
        if job_offer.offer.offer_id in inferred_by_id
    ]
    return HybridPlan(
        train=trained[0] if trained else None,
        infer=inferred[0] if inferred else None,
        both=min(both, key=lambda pair: _usd(pair[0]) + _usd(pair[1]), default=None),
    )


def _usd(job_offer: JobOffer) -> float:
    return job_offer.cost.microusd / MICRO


# --- JSON -------------------------------------------------------------------------------------------------------------


def plan_cases_json(market: CurrentOffers, case_offers: Sequence[CaseOffers]) -> dict[str, Any]:
    """JSON of `gpuwatch plan cases`."""
    cases = [
        {"case": case_row.case.name, "offers": [_offer_json(offer) for offer in case_row.best]}
        for case_row in case_offers
    ]
    return _head_json(market) | {"cases": cases}


def plan_hybrid_json(market: CurrentOffers, plan: HybridPlan) -> dict[str, Any]:
    """JSON of `gpuwatch plan hybrid`."""
    return _head_json(market) | {
        "train": None if plan.train is None else _offer_json(plan.train),
        "infer": None if plan.infer is None else _offer_json(plan.infer),
        "both": None if plan.both is None else [_offer_json(job_offer) for job_offer in plan.both],
        "apart_usd": plan.separate_usd,
        "together_usd": plan.combined_usd,
    }


def _head_json(market: CurrentOffers) -> dict[str, Any]:
    as_of = rfc3339(market.as_of)
    return {"samples": len(market.offers), "since": as_of, "until": as_of, "source": market.source}


def _offer_json(job_offer: JobOffer) -> dict[str, Any]:
    return offer_view(job_offer.offer, job_offer.price).json() | {
        "job_cost_usd": _usd(job_offer),
        "job_cost_low_usd": job_offer.cost.low.microusd / MICRO,
        "hours": job_offer.cost.high.hours,
        "hours_low": job_offer.cost.low.hours,
        "hours_from": job_offer.cost.how,
    }
