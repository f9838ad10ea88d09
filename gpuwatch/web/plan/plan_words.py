"""What a plan says: the answer in a sentence, a row for each machine, what the figures assume."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil, floor
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from gpuwatch.app.reader_text import percent, span
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.market.money import MICRO, dollars, hourly_text, usd, whole_dollars
from gpuwatch.domain.market.offer import OfferKind, clean
from gpuwatch.domain.market.price_rank import Standing
from gpuwatch.domain.plan.job_comparison import Feasibility, JobOffer, feasibility
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.language import mark_text, translate_composed, translate_plural
from gpuwatch.language import translate as _

if TYPE_CHECKING:
    from gpuwatch.app.market.market_ranks import GpuRank
    from gpuwatch.app.plan.plan_choices import JobChoices
    from gpuwatch.app.plan.plan_job import OfferPlan
    from gpuwatch.domain.jobs.job_request import JobRequest
    from gpuwatch.domain.plan.job_total import JobCost

_TICKS = 4  # labels after $0; the axis is one step longer
_STEPS = (1, 2, 5, 10)
_WHOLE_FROM_MICROUSD = 10 * MICRO
_BEST = "c"  # colour of the first row
_UNKNOWN = {
    "download time": mark_text("the time of the download is unknown"),
    "download cost": mark_text("the price of the download is unknown"),
    "upload cost": mark_text("the price of the upload is unknown"),
}


def answer_of(request: JobRequest, plan: OfferPlan, choices: JobChoices, cheapest: JobCost | None) -> str:
    """The first sentence.

    Args:
        cheapest: the job on the cheapest offer if it may take any time; None: no offer can run it.
    """
    best = next(iter((*choices.fitting, *choices.breaking)), None)
    if best is None or feasibility(best.cost, request.max_usd, plan.spec.within_s) is Feasibility.NOT_FEASIBLE:
        return _none_fits(request, plan, None if best is None else best.cost, cheapest)
    values = {
        "low": _low(best.cost),
        "high": _high(best.cost, request),
        "machine": _machine(best),
        "hours": hours_text(best.cost, " to "),
    }
    if request.max_usd is None and plan.spec.within_s is None:
        return _("The cheapest: {low} to {high} on {machine}, done in {hours}.").format(**values)
    if choices.fitting:
        return _("It fits: {low} to {high} on {machine}, done in {hours}.").format(**values)
    return _("Uncertain: {low} to {high} on {machine}, done in {hours}; only the best case keeps your limits.").format(
        **values
    )


def _none_fits(request: JobRequest, plan: OfferPlan, best: JobCost | None, cheapest: JobCost | None) -> str:
    if best is not None and request.max_cost is not None:
        text = _("No offer fits: the cheapest is {amount}, you allow {limit}.")
        return text.format(amount=_high(best, request), limit=whole_dollars(round(request.max_cost * MICRO)))
    if cheapest is not None and plan.spec.within_s is not None:
        text = _("No offer fits in {limit}: the cheapest takes up to {hours} and costs {amount}.")
        hours = f"{ceil(cheapest.high.hours):,} h"
        return text.format(limit=span(plan.spec.within_s), hours=hours, amount=whole_dollars(cheapest.microusd))
    return _("No offer can run it.")


def _high(cost: JobCost, request: JobRequest) -> str:
    """The worst case, in cents where whole dollars would look like the limit."""
    whole, limit = whole_dollars(cost.microusd), request.max_cost
    if limit is not None and whole == whole_dollars(round(limit * MICRO)) and cost.microusd != round(limit * MICRO):
        return dollars(usd(cost.microusd))
    return whole


def _low(cost: JobCost) -> str:
    """The best case, in whole dollars where the worst case is."""
    if cost.microusd < _WHOLE_FROM_MICROUSD:
        return whole_dollars(cost.low.microusd)
    return f"${round(cost.low.microusd / MICRO):,}"


def hours_text(cost: JobCost, between: str = "–") -> str:
    """The time of the job: "7–12 h", below ten hours with one decimal; the best case rounded down, the worst up."""
    digits = 0 if cost.high.hours >= 10 else 1
    low = f"{floor(cost.low.hours * 10**digits) / 10**digits:,.{digits}f}"
    high = f"{ceil(cost.high.hours * 10**digits) / 10**digits:,.{digits}f}"
    between = _(" to ") if between == " to " else between
    return f"{high}\N{NO-BREAK SPACE}h" if low == high else f"{low}{between}{high}\N{NO-BREAK SPACE}h"


def _machine(one: JobOffer) -> str:
    return f"{one.offer.gpu_count}× {clean(one.offer.gpu)}"


# --- rows -------------------------------------------------------------------------------------------------------------


def axis_of(choices: JobChoices, request: JobRequest) -> tuple[float, list[str]]:
    """The end of the dollar axis, and its labels from $0 on."""
    most = max((one.cost.microusd / MICRO for one in (*choices.fitting, *choices.breaking)), default=1.0)
    if request.max_cost is not None:
        most = min(max(most, request.max_cost), 2 * request.max_cost)
    step = _nice(most / (_TICKS + 1))
    labels = [whole_dollars(round(step * number * MICRO)) for number in range(1, _TICKS + 1)]
    return step * (_TICKS + 1), ["$0", *labels]


def _nice(least: float) -> float:
    size = 10.0 ** floor(len(f"{max(least, 0.01):.0f}") - 1) if least >= 1 else 0.01
    while True:
        for factor in _STEPS:
            if size * factor >= least:
                return size * factor
        size *= 10


def rows_of(choices: JobChoices, request: JobRequest, plan: OfferPlan, picked: str) -> dict[str, Sequence[Any]]:
    """The rows of the table: those within the limits, and those that may break one."""
    first, common = next(iter(choices.fitting), None), unknown_of_all(choices)
    fitting = [_row(one, request, plan, picked, common, _BEST if one is first else "a") for one in choices.fitting]
    breaking = [_row(one, request, plan, picked, common, "e") for one in choices.breaking]
    rows = [*fitting, *breaking]
    if rows and not any(row["checked"] for row in rows):
        rows[0]["checked"] = True
    return {"fitting": fitting, "breaking": breaking}


def _row(
    one: JobOffer, request: JobRequest, plan: OfferPlan, picked: str, common: Collection[str], colour: str
) -> dict[str, Any]:
    offer, cost = one.offer, one.cost
    where = [provider_title(offer.provider)] + ([clean(offer.place)] if offer.place else [])
    key = f"{offer.gpu_count}|{offer.gpu}|{offer.provider}"
    return {
        "key": key,
        "machine": _machine(one),
        "where": " · ".join([*where, hourly_text(one.price.price_microusd_hour)]),
        "low": cost.low.microusd / MICRO,
        "high": cost.microusd / MICRO,
        "cost": _cost_text(cost, request),
        "hours": hours_text(cost),
        "note": "; ".join(_caveats(one, request, plan, common)),
        "is_best": colour == _BEST,
        "colour": colour,
        "checked": key == picked,
    }


def _cost_text(cost: JobCost, request: JobRequest) -> str:
    low, high = _low(cost), _high(cost, request)
    return high if low == high else f"{low}–{high[1:]}"


def unknown_of_all(choices: JobChoices) -> frozenset[str]:
    """What the figures of every row leave out: said once, beside the rows."""
    found = [frozenset(one.cost.unknown) for one in (*choices.fitting, *choices.breaking)]
    return frozenset.intersection(*found) if found else frozenset()


def _caveats(one: JobOffer, request: JobRequest, plan: OfferPlan, common: Collection[str]) -> Iterable[str]:
    cost, within_s = one.cost, plan.spec.within_s
    if one.too_cheap:
        yield _("implausibly cheap: a mistake, a trap, or a machine that fails")
    if one.is_unlikely and one.chance is not None:
        yield _("likely to fail before the end: {chance} chance to finish").format(chance=percent(one.chance))
    if within_s is not None and cost.high.hours * HOUR_S > within_s * (1 + 1e-9):
        yield _("may miss {limit}").format(limit=span(within_s))
    if request.max_usd is not None and cost.microusd > request.max_usd * MICRO:
        limit = whole_dollars(round(request.max_usd * MICRO))
        text = _("may cost over {limit}") if cost.low.microusd <= request.max_usd * MICRO else _("costs over {limit}")
        yield text.format(limit=limit)
    if one.offer.spot:
        yield _("spot: may be interrupted")
    if one.offer.kind is OfferKind.LISTED:
        yield _("list price: maybe not on sale")
    yield from (_(_UNKNOWN[name]) for name in cost.unknown if name in _UNKNOWN and name not in common)


# --- beside the rows --------------------------------------------------------------------------------------------------


def counts_sentence(plan: OfferPlan) -> str:
    """How many offers can run it."""
    text = translate_plural(
        "{able} of {count} offer can run it.", "{able} of {count} offers can run it.", plan.ranking.seen
    )
    return text.format(able=f"{len(plan.ranking.placed):,}", count=f"{plan.ranking.seen:,}")


def assumptions_of(plan: OfferPlan, best: JobOffer | None, common: Collection[str]) -> list[tuple[str, str | Markup]]:
    """What the figures assume, as (label, text)."""
    found: list[tuple[str, str | Markup]] = []
    if plan.spec.memory_gb:
        text = f"{plan.spec.memory_gb:,.1f}\N{NO-BREAK SPACE}GB"
        memory_gib = None if best is None else best.offer.gpu_memory_gib
        if best is not None and memory_gib:
            whole = f"{memory_gib * best.offer.gpu_count:,.0f}\N{NO-BREAK SPACE}GB"
            text = _("{needed} of {whole}").format(needed=text, whole=whole)
        found.append((_("Memory"), text))
    if best is not None:
        found.append((_("Speed"), translate_composed(clean(best.cost.how))))
    if plan.needs.disk_gb:
        found.append((_("Disk"), f"{plan.needs.disk_gb:,.0f}\N{NO-BREAK SPACE}GB"))
    if plan.needs.traffic.download_gb:
        found.append((_("Download"), f"{plan.needs.traffic.download_gb:,.0f}\N{NO-BREAK SPACE}GB"))
    if best is not None:
        low, high = span(best.cost.low.ready_h * HOUR_S), span(best.cost.high.ready_h * HOUR_S)
        found.append((_("Set-up"), low if low == high else _("{low} to {high}").format(low=low, high=high)))
    if left_out := [_(text) for name, text in _UNKNOWN.items() if name in common]:
        found.append((_("Left out"), "; ".join(left_out)))
    return found


def waiting_sentence(rank: GpuRank | None, one: JobOffer) -> str:
    """Whether the price is likely to fall, by where it stands among the hours of 30 days."""
    gpu, price = clean(one.offer.gpu), one.price.price_microusd_hour / one.offer.gpu_count
    share = None if rank is None else rank.share_below(price)
    if rank is None or share is None:
        return _("Unknown: there is too little history of {gpu}.").format(gpu=gpu)
    standing = rank.standing(price)
    if standing is Standing.CHEAP:
        text = _("Hardly: in {share} of the hours of 30 days {gpu} was cheaper.")
    elif standing is Standing.DEAR:
        text = _("Likely: in {share} of the hours of 30 days {gpu} was cheaper.")
    else:
        text = _("Perhaps: {gpu} costs what it usually does; in {share} of the hours of 30 days it was cheaper.")
    return text.format(gpu=gpu, share=percent(share))


def next_sentence(request: JobRequest, gpus: Mapping[str, None]) -> str:
    """What a job or a watch of this plan accepts."""
    first, *others = gpus or {"": None}
    limit = None if request.max_cost is None else whole_dollars(round(request.max_cost * MICRO))
    if limit is None:
        return _("At or under the price of the machines that cost little more than {machine}.").format(machine=first)
    if not others:
        text = _("For {machine}, at or under the price at which the job stays under {limit}.")
        return text.format(machine=first, limit=limit)
    text = translate_plural(
        "For {machine} and {count} GPU that does as well, at or under the price at which the job stays under {limit}.",
        "For {machine} and {count} GPUs that do as well, at or under the price at which the job stays under {limit}.",
        len(others),
    )
    return text.format(machine=first, count=len(others), limit=limit)
