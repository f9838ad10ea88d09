"""`gpuwatch plan for`: rent, reserve, buy, credits or both, for a kind of owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuwatch.app.plan.owners.plan_for import plan_for
from gpuwatch.app.plan.owners.plan_for_json import (
    commitment_lines,
    credit_line,
    owner_sentence,
    plan_for_json,
    stale_text,
)
from gpuwatch.app.plan.plan_request import FOR_OPTIONS, request_of
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli import Exit
from gpuwatch.cli.base import verbose_option, wants_method
from gpuwatch.cli.options import config_option, json_option
from gpuwatch.cli.output import echo, json_out, note
from gpuwatch.cli.plan.plan import KeyCommand, key_options
from gpuwatch.cli.plan.plan_buy import rent_change_line
from gpuwatch.cli.terminal_tables import left, right, table
from gpuwatch.domain.market.money import dollars, per_hour
from gpuwatch.domain.plan.owners.owner_cases import a_month
from gpuwatch.domain.plan.owners.owner_data import owner_cases
from gpuwatch.domain.plan.ownership import OWNING_METHOD_TEXT
from gpuwatch.domain.plan.plan_schema import ForRequest
from gpuwatch.errors import ProviderDown

if TYPE_CHECKING:
    from datetime import date
    from decimal import Decimal

    from gpuwatch.app.plan.owners.plan_for import OwnerPlan
    from gpuwatch.domain.plan.owners.owner_cases import CreditProgram, CreditUse

_WAYS = (left("way"), right("a month"), right("a year"), right("in all", drop=1))
_GRANTS = (left("grants and credits"), left("at"), right("most"), right("days"), right("saves up to"))
_CLOUDS = (left("cloud"), right("price"), right("commitment"))


@click.command(
    cls=KeyCommand,
    keys=ForRequest,
    options=FOR_OPTIONS,
    example="articles-buy.toml",
    examples=(
        "gpuwatch plan for startup --gpu '8x H100 SXM' --credit 5000",
        "gpuwatch plan for company --gpu '4x RTX 4090' --rent 1.60 --hours-a-day 12",
    ),
)
@click.argument("case", type=click.Choice(list(owner_cases())))
@key_options(ForRequest, FOR_OPTIONS)
@verbose_option
@json_option
@config_option
def for_(case: str, values: dict[str, Any], as_json: bool, config: str | None) -> int:
    """Rent, reserve, buy, use credits, or own a base and rent the peaks: what each costs a kind of owner.

    Prices are those of the store, hours those of your own launches, if there are any; every other figure is an
    assumption that an option or --set changes (--keys lists them).

    Exit codes: 0 done, 2 usage or no price, 3 a provider did not answer.
    """
    try:
        plan = plan_for(case, request_of(ForRequest, values, FOR_OPTIONS), lambda: load_settings(config))
    except ProviderDown as fault:
        note(f"{fault}")
        return Exit.CANNOT_TELL
    today = real_now().date()
    if as_json:
        json_out(plan_for_json(plan, today))
    else:
        _print(plan, today)
    for line in plan.notes:
        note(line)
    return Exit.CANNOT_TELL if plan.errors else Exit.DONE


def _print(plan: OwnerPlan, today: date) -> None:
    request, own = plan.request, plan.buy.own
    echo(f"{owner_sentence(plan)}\n")
    gpu_hours = f"{plan.work.hours * own.cards:,.2f}".rstrip("0").rstrip(".")
    title = f"{own.cards}× {own.card}, {gpu_hours} GPU-hours a day for {request.years} y"
    rows = [
        (f"{way.way.value}{' ←' if way is plan.best else ''}", *_costs(way.usd, request.years)) for way in plan.ways
    ]
    table(_WAYS, rows, title=title)
    # sentences stand under their table: a narrow terminal would cut them in a column
    for way in plan.ways:
        echo(f"- {way.way.value}: {way.how}{'' if way.why_not is None else f' ({way.why_not})'}")
    echo("")
    table(_GRANTS, [_grant(one) for one in plan.credits])
    for use in (one for one in plan.credits if one.program.url):
        echo(f"- {_who(use.program, today)}")
    echo("")
    table(_CLOUDS, [_cloud(plan, at) for at in range(len(plan.clouds))])
    for cloud in plan.clouds:
        echo(f"- {cloud.cloud.provider} for whom: {cloud.cloud.for_whom}")
    echo("\nAssumed")
    for line in _assumptions(plan):
        echo(f"- {line}")
    if wants_method():
        note(OWNING_METHOD_TEXT)
        for use in (one for one in plan.credits if one.program.url):
            note(f"{use.program.name}: {use.program.url}, looked up {use.program.looked_up}")
        for one in plan.clouds:
            note(f"{one.cloud.provider}: {one.cloud.url}; {one.cloud.commitment}: {one.cloud.commitment_url}")


def _costs(usd: Decimal | None, years: int) -> tuple[str, str, str]:
    if usd is None:
        return "–", "–", "–"
    return dollars(a_month(usd, years)), dollars(usd / years), dollars(usd)


def _who(program: CreditProgram, today: date) -> str:
    stale = stale_text(program, today)
    return f"{program.name}: {program.who}{'' if program.open else '; apply'}{f' ({stale})' if stale else ''}"


def _grant(use: CreditUse) -> tuple[str, ...]:
    program = use.program
    return (
        program.name,
        program.provider or "–",
        "hours" if program.usd is None else dollars(program.usd),
        "?" if program.days is None else f"{program.days}",
        dollars(use.saved_usd),
    )


def _cloud(plan: OwnerPlan, at: int) -> tuple[str, ...]:
    one = plan.clouds[at]
    price = "–" if one.price is None else per_hour(one.price.usd_hour, most=2)
    if one.price is not None and one.price.quarter is not None:
        price += f" ({one.price.quarter})"
    return one.cloud.provider, price, f"up to −{one.cloud.up_to_percent:f} %"


def _assumptions(plan: OwnerPlan) -> list[str]:
    request, own = plan.request, plan.buy.own
    loss = "–".join(f"{percent:f}" for percent in plan.buy.loss_percent)
    lines = [
        f"rent {per_hour(plan.work.usd_hour, most=2)} on demand (--rent)",
        rent_change_line(plan.buy) or "the rent stays as it is (--rent-change)",
        *commitment_lines(plan),
        credit_line(plan),
    ]
    if request.card_price:
        lines += [
            f"own cards: {dollars(own.card_price)} each and {dollars(own.other)} for the rest, −{loss} % a year "
            "(--card-price; --set other, loss)",
            f"{own.setup_weeks:f} weeks to set up, {own.setup_hours:f} h of people then and {own.upkeep_hours:f} h a "
            f"month, {per_hour(own.people_usd_hour)} (--set setup_weeks, setup_hours, upkeep_hours, people_usd_hour)",
            f"power {per_hour(own.usd_hour)} under load (--set kwh, cooling)",
        ]
        lines += [_pays_from(plan)]
    lines.append("spot: interruptions are not counted (gpuwatch plan job counts them)")
    return lines


def _pays_from(plan: OwnerPlan) -> str:
    years = plan.buy.comparisons[0].years
    first = next((one.year for one in years if one.owned_usd[1] < one.rented_usd), None)
    if first is None:
        return f"owning is dearer than renting on demand in all {len(years)} years"
    length = "a year" if first == 1 else f"{first} years"
    return f"owning is cheaper than renting on demand if used for {length} or more"
