"""What to choose from after a plan: the machines for a job, and the watch for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.app.plan.plan_watch import LIMIT, chosen_offers, offer_clauses, offers_under_one_limit, toml_value
from gpuwatch.domain.launches.money.launch_costs import END_PROVEN_S
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.plan.job_comparison import Feasibility, JobOffer, feasibility

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_job import OfferPlan
    from gpuwatch.domain.jobs.job_request import JobRequest

_RUNTIME = 1.25  # ratio of the longest runtime to the longest planned hours, as in a planned watch


class JobChoices(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest offer of each provider for each number of each GPU, by cost in the worst case.

    Attributes:
        fitting: within the limits, also in the worst case.
        breaking: within them in the best case only, or doubtful; if there are no others, also those that break one.
    """

    fitting: Sequence[JobOffer]
    breaking: Sequence[JobOffer]


def job_choices(request: JobRequest, plan: OfferPlan, most: int) -> JobChoices:
    """The offers of a plan to choose from, at most so many of each kind."""
    by_verdict: dict[Feasibility, list[JobOffer]] = {verdict: [] for verdict in Feasibility}
    doubtful = []
    for one in _one_of_each([*plan.ranking.placed, *plan.ranking.late]):
        verdict = feasibility(one.cost, request.max_usd, plan.spec.within_s)
        if one.is_doubtful and verdict is not Feasibility.NOT_FEASIBLE:
            doubtful.append(one)
        elif not one.is_doubtful:
            by_verdict[verdict].append(one)
    fitting = by_verdict[Feasibility.FEASIBLE]
    breaking = [*by_verdict[Feasibility.UNCERTAIN], *doubtful]
    if not fitting and not breaking:
        breaking = by_verdict[Feasibility.NOT_FEASIBLE]
    return JobChoices(fitting=fitting[:most], breaking=breaking[:most])


def _one_of_each(job_offers: Iterable[JobOffer]) -> list[JobOffer]:
    found: dict[tuple[str, int, str, bool], JobOffer] = {}
    for one in sorted(job_offers, key=lambda one: one.cost.microusd):
        found.setdefault((one.offer.provider, one.offer.gpu_count, one.offer.gpu, one.is_doubtful), one)
    return list(found.values())


def watch_keys(name: str, request: JobRequest, plan: OfferPlan) -> dict[str, str] | None:
    """The settings of a watch for the offers of a plan, by key, as texts of TOML; None: no offer can run the job.

    Its limit is the price per GPU-hour at which the job stays under its highest cost even at the longest time.
    """
    chosen = chosen_offers(request, plan)
    if not chosen:
        return None
    count, best_usd = chosen[0].offer.gpu_count, chosen[0].cost.microusd / MICRO
    limit_usd = LIMIT * best_usd if request.max_usd is None else request.max_usd
    same = [one for one in chosen if one.offer.gpu_count == count]
    offers = offers_under_one_limit(same, limit_usd, END_PROVEN_S)
    longest_h = max(one.cost.high.hours for one in offers)
    if request.max_usd is None:
        price = ceil(max(one.price.price_microusd_hour for one in offers) / count / MICRO * 100) / 100
    else:
        price = max(1, floor(limit_usd / (longest_h + END_PROVEN_S / 3600) / count * 10_000)) / 10_000
    clauses = {"name": name, **offer_clauses(request, plan, offers), "max_price": price}
    clauses["launch.max_runtime"] = f"{max(1, ceil(_RUNTIME * longest_h))}h"
    return {key: value if isinstance(value, str) else toml_value(value) for key, value in clauses.items()}
