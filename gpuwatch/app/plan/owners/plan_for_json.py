"""`gpuwatch plan for` as sentences and as JSON."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from gpuwatch.domain.market.json_view import number
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.plan.owners.owner_cases import ASSUMED_DAYS, Way, a_month
from gpuwatch.domain.plan.ownership import OWNING_METHOD_TEXT

if TYPE_CHECKING:
    from gpuwatch.app.plan.owners.plan_for import OwnerPlan
    from gpuwatch.domain.plan.owners.owner_cases import CreditProgram, CreditUse

_STALE: Final = timedelta(days=180)
_ADVICE: Final = {
    Way.RENT: "rent on demand",
    Way.SPOT: "rent spot machines, with checkpoints",
    Way.CREDITS: "use credits, then rent",
    Way.RESERVE: "reserve",
    Way.BUY: "buy",
    Way.HYBRID: "own the base load and rent the peaks",
}


def owner_sentence(plan: OwnerPlan) -> str:
    """The advice in one plain sentence."""
    best, years = plan.best, plan.request.years
    usd = best.usd or Decimal(0)
    text = f"For {plan.case.title}: {_ADVICE[best.way]}, {dollars(a_month(usd, years))} a month"
    rent = plan.ways[0].usd or Decimal(0)
    if best.way is not Way.RENT and rent:
        less = 100 - 100 * usd / rent
        text += f", {'under 1' if less < 1 else f'{less:.0f}'} % less than on demand"
    return f"{text}. Rule of thumb: {plan.case.hint}."


def commitment_lines(plan: OwnerPlan) -> list[str]:
    """From which use each commitment is cheaper than on demand."""
    used = plan.used_percent
    lines = [
        f"a commitment at −{one.discount_percent:f} % for {one.term_years} y {_pays(percent)}; you use {used:.0f} %"
        for one, percent in plan.commitments
    ]
    if lines and "reserved" not in plan.request.model_fields_set:
        lines.append("… at the discounts that the articles state (--set reserved)")
    return lines


def _pays(percent: Decimal) -> str:
    return "never pays" if percent > 100 else f"pays from {percent:.0f} % of all hours"


def credit_line(plan: OwnerPlan) -> str:
    """At what price credits are counted, and until when."""
    priced = sorted({one.program.provider for one in plan.credits if one.program.provider and one.usd_hour is not None})
    where = f"at the prices of {', '.join(priced)}, elsewhere at your rent" if priced else "at your rent"
    return f"credits are counted {where}; one without a stated end for {ASSUMED_DAYS} days"


def stale_text(program: CreditProgram, today: date) -> str:
    """Whether what is known of a program is old; empty: it is not."""
    if today - program.looked_up > _STALE:
        return f"looked up {program.looked_up}: over 180 days ago"
    if program.page_date is not None and today - program.page_date > _STALE:
        return f"the page was of {program.page_date}: over 180 days ago"
    return ""


def plan_for_json(plan: OwnerPlan, today: date) -> dict[str, Any]:
    """JSON of `gpuwatch plan for`."""
    request, change = plan.request, plan.buy.rent_change
    return {
        "case": plan.case.name,
        "sentence": owner_sentence(plan),
        "method": OWNING_METHOD_TEXT,
        "gpu": plan.buy.own.card,
        "gpu_count": plan.buy.own.cards,
        "years": request.years,
        "hours_a_day": number(request.hours_a_day),
        "rent_usd_hour": number(plan.work.usd_hour),
        "rent_provider": plan.offer and plan.offer.provider,
        "rent_percent_a_year": 100 * change.a_year,
        "rent_percent_a_year_low": 100 * change.low,
        "rent_percent_a_year_high": 100 * change.high,
        "best": plan.best.way.value,
        "ways": [
            {
                "way": way.way.value,
                "how": way.how,
                "total_usd": number(way.usd),
                "month_usd": None if way.usd is None else number(a_month(way.usd, request.years)),
                "year_usd": None if way.usd is None else number(way.usd / request.years),
                "why_not": way.why_not,
            }
            for way in plan.ways
        ],
        "commitments": [
            {
                "discount_percent": number(one.discount_percent),
                "term_years": one.term_years,
                "break_even_percent": number(percent),
                "used_percent": number(plan.used_percent),
            }
            for one, percent in plan.commitments
        ],
        "owned": _owned_json(plan),
        "base_cards": plan.base and plan.base.cards,
        "credits": [_credit_json(one, today) for one in plan.credits],
        "clouds": [
            {
                "provider": one.cloud.provider,
                "for_whom": one.cloud.for_whom,
                "url": one.cloud.url,
                "price_usd_hour": one.price and number(one.price.usd_hour),
                "price_quarter": one.price and one.price.quarter,
                "commitment": one.cloud.commitment,
                "commitment_up_to_percent": number(one.cloud.up_to_percent),
                "commitment_url": one.cloud.commitment_url,
            }
            for one in plan.clouds
        ],
        "notes": list(plan.notes),
    }


def _owned_json(plan: OwnerPlan) -> list[dict[str, Any]]:
    return [
        {
            "year": one.year,
            "owned_low_usd": number(one.owned_usd[0]),
            "owned_usd": number(one.owned_usd[1]),
            "rented_usd": number(one.rented_usd),
        }
        for one in (plan.buy.comparisons[0].years if plan.request.card_price else ())
    ]


def _credit_json(use: CreditUse, today: date) -> dict[str, Any]:
    program = use.program
    return {
        "program": program.name,
        "provider": program.provider or None,
        "usd": number(program.usd),
        "days": program.days,
        "needs_review": not program.open,
        "who": program.who,
        "saves_usd": number(use.saved_usd),
        "hours": number(use.hours),
        "url": program.url or None,
        "looked_up": program.looked_up.isoformat(),
        "stale": stale_text(program, today) or None,
    }
