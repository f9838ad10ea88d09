"""`gpuwatch plan buy`: own cards or rented ones; when does buying pay off?"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.app.plan.plan_buy import BuyPlan, buy_sentence, plan_buy, plan_buy_json
from gpuwatch.app.plan.plan_request import BUY_OPTIONS, request_of
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli import Exit
from gpuwatch.cli.base import verbose_option, wants_method
from gpuwatch.cli.options import (
    config_option,
    json_option,
    moment,
)
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.cli.plan.plan import KeyCommand, key_options
from gpuwatch.cli.terminal_tables import left, right, table
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import dollars, per_hour
from gpuwatch.domain.plan.buy import BUY_METHOD_TEXT
from gpuwatch.domain.plan.ownership import DAY_HOURS, OWNING_METHOD_TEXT
from gpuwatch.domain.plan.plan_schema import BuyRequest, OwnedMachine

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_use import RentedPeriod
    from gpuwatch.domain.plan.buy import RentComparison

_FEW_DAYS = 7
_YEARS = (right("years"), right("owned"), right("rented"), left("cheaper"))


@click.command(
    cls=KeyCommand,
    keys=BuyRequest,
    options=BUY_OPTIONS,
    example="articles-buy.toml",
    examples=(
        "gpuwatch plan buy --card 'RTX 4090' --cards 4 --card-price 1500 --rent 10 --set other=0",
        "gpuwatch plan buy --cards 4 --launches",
    ),
)
@key_options(BuyRequest, BUY_OPTIONS)
@verbose_option
@json_option
@config_option
def buy(values: dict[str, Any], as_json: bool, config: str | None) -> int:
    """Compare owning cards with renting: what each costs, and when buying pays off.

    Without options: the articles' example, 140 GB on RTX 4090 cards compared with a machine with 8 H100.

    Exit codes: 0 done, 2 usage, 3 too few launches of your own.
    """
    request = request_of(BuyRequest, values, BUY_OPTIONS)
    since = moment(request.since, real_now()) if request.launches else None
    plan = plan_buy(request, lambda: load_settings(config), since)
    for line in plan.notes:
        note(line)
    if as_json:
        json_out(plan_buy_json(plan))
    else:
        _print(plan, load_settings(config).timezone if plan.log else "UTC")
    return Exit.CANNOT_TELL if plan.log is not None and not plan.log.is_enough else Exit.DONE


def _print(plan: BuyPlan, timezone: str) -> None:
    """One row per figure, one column per tariff."""
    if (sentence := buy_sentence(plan)) is not None:
        click.echo(f"{sentence}\n")
    own, log, job_hours = plan.own, plan.log, plan.usage.job_hours * plan.own.slower
    click.echo(
        f"Own: {own.cards}× {own.card} for {dollars(own.investment_usd)}; {own.kilowatts:.2f} kW, "
        f"{per_hour(own.usd_hour)} under load.\n"
        f"The job takes {_figure(job_hours / DAY_HOURS)} days on them and uses {dollars(own.usd_hour * job_hours)} of "
        "power and cooling."
    )
    if plan.comparisons:
        best = plan.comparisons[0]
        click.echo()
        table(
            (left(""), *(right(comparison.tariff.name, drop=at) for at, comparison in enumerate(plan.comparisons))),
            _rows(plan),
        )
    if plan.comparisons and plan.comparisons[0].years:
        click.echo()
        table(_YEARS, _year_rows(plan), title=f"Owned until then and resold, against {best.tariff.name}")
    if log is not None:
        note(_log_line(own, log, timezone))
    if not plan.comparisons:
        return
    if wants_method():
        note(BUY_METHOD_TEXT)
        note(OWNING_METHOD_TEXT)
    if (line := rent_change_line(plan)) is not None:
        note(line)
    if any(comparison.tariff.name.startswith("spot") for comparison in plan.comparisons):
        note("spot: the cost of interruptions is not included; gpuwatch plan job computes it")
    if log is None and best.day_usd:
        speed = "" if own.slower == 1 else f" and that your machine takes {_figure(own.slower)} times as long (slower)"
        note(
            f"price ÷ rent per day alone, as articles calculate, is {own.investment_usd / best.day_usd:.2f} days: it "
            f"leaves out your running cost{speed}"
        )


def _year_rows(plan: BuyPlan) -> list[tuple[str, ...]]:
    return [
        (
            f"{one.year}",
            "–".join(dict.fromkeys(dollars(usd) for usd in one.owned_usd)),
            dollars(one.rented_usd),
            "own" if one.owned_usd[1] < one.rented_usd else "rent" if one.owned_usd[0] > one.rented_usd else "alike",
        )
        for one in plan.comparisons[0].years
    ]


def rent_change_line(plan: BuyPlan) -> str | None:
    """What the trend of the rent does to the pay-back; None: the rent is taken as constant."""
    change = plan.rent_change
    if not change.a_year and change.gpu is None:
        return None
    if change.gpu is None:
        return f"the rent changes by {100 * change.a_year:+.1f} % a year"
    ends = f"{100 * change.low:+.1f} % and {100 * change.high:+.1f} %"
    line = (
        f"the rent of {change.gpu} changes by {100 * change.a_year:+.1f} % a year, between {ends} (95 % interval, "
        "mostly of list prices: gpuwatch forecasts trend)"
    )
    if not plan.own.card_price:
        return line
    low, high = (one.payback_days for one in plan.at_ends)
    if low is None and high is None:
        return f"{line}; owning never pays back, at neither end"
    return f"{line}; at these ends owning pays back {_in_days(low)} and {_in_days(high)}"


def _rows(plan: BuyPlan) -> list[tuple[str, ...]]:
    comparisons, loss = plan.comparisons, plan.loss_percent
    span = "–".join(dict.fromkeys(f"{percent.normalize():f}" for percent in (min(loss), max(loss))))
    return [
        ("price", *(per_hour(comparison.tariff.usd_hour, most=2) for comparison in comparisons)),
        (
            "… with storage and traffic",
            *(per_hour(comparison.tariff.effective_usd_hour, most=2) for comparison in comparisons),
        ),
        (f"the job, {_figure(plan.usage.job_hours)} h", *(dollars(comparison.job_usd) for comparison in comparisons)),
        ("rent per day", *(dollars(comparison.day_usd) for comparison in comparisons)),
        ("saved per day by owning", *(dollars(comparison.saved_usd_day) for comparison in comparisons)),
        ("pays back in days", *(_days(comparison.payback_days) for comparison in comparisons)),
        ("", *(comparison.verdict.value for comparison in comparisons)),
        (f"rented h in year 1, loss {span} %", *(_hours(comparison) for comparison in comparisons)),
    ]


def _log_line(own: OwnedMachine, log: RentedPeriod, timezone: str) -> str:
    if not log.gpu_hours:
        return "not enough data: no launches in that time"
    if not log.is_enough:
        return "not enough data: your first launch is less than a day old"
    share = log.gpu_hours / own.cards / log.days * own.slower / 24 * 100
    beyond = " (exceeds their capacity: the rest stays rented)" if share > 100 else ""
    warning = f"; only {_figure(log.days)} days: a rough estimate" if log.days < _FEW_DAYS else ""
    return (
        f"your own usage: {count_text(log.launches, 'launch', 'launches')} since "
        f"{local(log.since, timezone)[:10]}, {log.gpu_hours:,.1f} "
        f"GPU-hours for {dollars(log.usd)}; your own cards would be busy {share:.0f} % of the time{beyond}{warning}"
    )


def _days(days: Decimal | None) -> str:
    return "never" if days is None else f"{days:,.1f}" if days >= 10 else f"{days:.2f}"


def _in_days(days: Decimal | None) -> str:
    return "never" if days is None else f"in {_days(days)} days"


def _hours(comparison: RentComparison) -> str:
    return "–".join(dict.fromkeys("never" if hours is None else f"{hours:,.0f}" for hours in comparison.hours_a_year))


def _figure(value: Decimal) -> str:
    return f"{value:,.2f}".rstrip("0").rstrip(".")
