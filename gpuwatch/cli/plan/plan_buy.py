"""`gpuwatch plan buy`: own cards or rented ones; when does buying pay off?"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, refuse_given
from gpuwatch.cli.options import (
    Between,
    Percents,
    Usd,
    config_option,
    gpu_option,
    json_option,
    moment,
    value_option,
)
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.cli.terminal_tables import left, right, table
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import dollars, price_text
from gpuwatch.domain.plan.buy import (
    BUY_METHOD_TEXT,
    DAY_HOURS,
    SOURCE_SLOWER,
    PaybackVerdict,
    simple_payback,
    source_calculation,
    source_payback_corrected,
)

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_buy import BuyPlan
    from gpuwatch.app.plan.plan_use import RentedPeriod
    from gpuwatch.domain.plan.buy import OwnedMachine, RentComparison, SourceCalculation

_FEW_DAYS = 7
_VERDICTS = {
    PaybackVerdict.GREEN: "buy: it pays back in under 30 days",
    PaybackVerdict.AMBER: "borderline: it pays back in 30 to 90 days, if the work continues",
    PaybackVerdict.RED: "rent: it takes 90 days or more to pay back, or never does",
}


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan buy --card 'RTX 4090' --cards 4 --card-price 1500 --other 0 --rent 10",
        "gpuwatch plan buy --cards 4 --launches",
    ),
)
@gpu_option("--card", "Card to buy. Default: RTX 4090.")
@value_option("--cards", click.IntRange(1, 10_000), "Number of cards. Default: as many as --memory needs.")
@value_option("--memory", Between(0.1, 1e6), "GPU memory the model needs, in GB. Default: 140.", name="memory_gb")
@value_option("--card-memory", Between(0.1, 1e4), "GB per card. Default: data sheet.", name="card_memory_gb")
@value_option(
    "--card-price",
    Usd(zero=True),
    "Price per card. Default: 2000 for the example's card.",
    name="card_usd",
    metavar="USD",
)
@value_option("--card-watts", Between(0, 1e4), "Watts per card. Default: data sheet.")
@value_option("--other", Usd(zero=True), "Price of the rest of the hardware, in USD.", "5000", name="other_usd")
@value_option("--system-watts", Between(0, 1e5), "Watts of the rest of the hardware.", 500.0)
@value_option("--kwh", Usd(zero=True), "Price of electricity, in USD per kWh.", "0.15", name="usd_kwh")
@value_option("--cooling", Between(0, 1000), "Cooling, in percent of the power.", 30.0, name="cooling_percent")
@value_option("--yearly", Usd(zero=True), "USD per year for space, repairs and risk.", "0", name="yearly_usd")
@value_option(
    "--slower",
    Between(0.01, 1000),
    "Runtime on your own machine as a multiple of the rented one. Default: 2.5 for the example, else 1.",
)
@value_option("--rent", Usd(), "Price of the rented machine per hour. Default: 98.32.", name="rent_usd", metavar="USD")
@gpu_option("--rent-gpu", "Alternative: use the cheapest such offer in the store.", metavar='"8x GPU"')
@value_option(
    "--extra", Between(0, 1000), "Storage and traffic, in percent of the rent. Default: 10.", name="extra_percent"
)
@value_option("--days", Between(0.01, 36500), "Duration of the job on the rented machine, in days.", 7.0)
@value_option("--hours-a-day", Between(0.01, 24), "Hours per day that you rent.", 24.0)
@value_option(
    "--loss", Percents(101), "Percent of its value that hardware loses per year.", "30-40", name="loss_percent"
)
@value_option("--reserved", Percents(), 'Discount in percent, or "none".', "40-60", name="reserved_percent")
@value_option("--spot", Percents(), 'Discount in percent, or "none".', "70-90", name="spot_percent")
@click.option("--launches", "own_log", is_flag=True, help="Compare with what your own launches cost.")
@value_option("--since", click.STRING, "With --launches: start of the period.", "90d")
@gpu_option("--log-gpu", "With --launches: only this GPU.")
@click.option("--seed", is_flag=True, help="Show the sources' original calculation, to the cent.")
@json_option
@config_option
def buy(own_log: bool, since: str, seed: bool, as_json: bool, config: str | None, **options: Any) -> int:
    """Compare owning cards with renting: what each costs, and when buying pays off.

    Without options: the source's example, 140 GB on RTX 4090 cards compared with a machine with 8 H100.

    Exit codes: 0 done, 2 usage, 3 too few launches of your own.
    """
    from gpuwatch.app.plan.plan_buy import BuyRequest, plan_buy, plan_buy_json
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings

    if seed:
        refuse_given("cannot be combined with --seed, the sources' original calculation", *options, "own_log", "since")
        return _show_sources(as_json)
    if not own_log:
        refuse_given("requires --launches", "since", "log_gpu")
    request = BuyRequest(launches_since=moment(since, real_now()) if own_log else None, **options)
    plan = plan_buy(request, lambda: load_settings(config))
    for line in plan.notes:
        note(line)
    if as_json:
        json_out(plan_buy_json(plan))
    else:
        _print(plan, load_settings(config).timezone if plan.log else "UTC")
    return Exit.CANNOT_TELL if plan.log is not None and not plan.log.is_enough else Exit.DONE


def _print(plan: BuyPlan, timezone: str) -> None:
    """One row per figure, one column per tariff."""
    own, log, job_hours = plan.own, plan.log, plan.usage.job_hours * plan.own.slower
    click.echo(
        f"Own: {own.cards}× {own.card} for {dollars(own.investment_usd)}; {own.kilowatts:.2f} kW, "
        f"${price_text(own.usd_hour)} an hour under load.\n"
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
        click.echo()
        click.echo(f"{best.tariff.name}: {_VERDICTS[best.verdict]}")
    if log is not None:
        note(_log_line(own, log, timezone))
    if not plan.comparisons:
        return
    note(BUY_METHOD_TEXT)
    if any(comparison.tariff.name.startswith("spot") for comparison in plan.comparisons):
        note("spot: the cost of interruptions is not included; gpuwatch plan job computes it")
    if log is None and best.day_usd:
        times = "just" if own.slower == 1 else f"{_figure(own.slower)} times"
        note(
            "the source's formula (--seed) ignores your running costs and the difference in speed, and gives "
            f"{own.investment_usd / best.day_usd:.2f} days; here your machine takes {times} as long (--slower)"
        )


def _rows(plan: BuyPlan) -> list[tuple[str, ...]]:
    comparisons, loss = plan.comparisons, plan.loss_percent
    span = "–".join(dict.fromkeys(f"{percent.normalize():f}" for percent in (min(loss), max(loss))))
    return [
        ("$ an hour", *(f"{comparison.tariff.usd_hour:,.2f}" for comparison in comparisons)),
        ("… with storage and traffic", *(f"{comparison.tariff.effective_usd_hour:,.2f}" for comparison in comparisons)),
        (f"the job, {_figure(plan.usage.job_hours)} h", *(f"{comparison.job_usd:,.2f}" for comparison in comparisons)),
        ("rent per day", *(f"{comparison.day_usd:,.2f}" for comparison in comparisons)),
        ("saved per day by owning", *(f"{round(comparison.saved_usd_day, 2) + 0:,.2f}" for comparison in comparisons)),
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


def _hours(comparison: RentComparison) -> str:
    return "–".join(dict.fromkeys("never" if hours is None else f"{hours:,.0f}" for hours in comparison.hours_a_year))


def _figure(value: Decimal) -> str:
    return f"{value:,.2f}".rstrip("0").rstrip(".")


# --- as the sources print it ------------------------------------------------------------------------------------------


def _show_sources(as_json: bool) -> int:
    """The sources' calculator and division, and the corrected result of the former."""
    from gpuwatch.app.plan.plan_buy import plan_buy_sources_json

    seed, plain = source_calculation(), simple_payback(Decimal(6000) + Decimal(1000), Decimal(10))
    if as_json:
        json_out(plan_buy_sources_json(seed, plain))
        return Exit.DONE
    table((left("6× RTX 4090 against p5.48xlarge, 7 days"), right("")), _seed_rows(seed))
    click.echo()
    click.echo(f"simple: $7,000 ÷ $10 an hour = {plain.hours:.0f} h = {plain.days:.2f} days")
    running, slower, combined = source_payback_corrected()
    note(
        f"corrected: {running:.2f} days after deducting the running cost, {slower:.2f} if your cards take "
        f"{SOURCE_SLOWER} times as long, {combined:.2f} with both; the source's number of cards (140 // 24 + 1) is one "
        "too high when the division has no remainder"
    )
    note("for your own figures: gpuwatch plan buy")
    return Exit.DONE


def _seed_rows(seed: SourceCalculation) -> list[tuple[str, str]]:
    return [
        ("cards", str(seed.cards)),
        ("investment $", f"{seed.investment_usd:,.2f}"),
        ("power kWh", f"{seed.kilowatt_hours:.1f}"),
        ("operating $", f"{seed.operating_usd:,.2f}"),
        ("own, total $", f"{seed.own_total_usd:,.2f}"),
        ("rented compute $", f"{seed.compute_usd:,.2f}"),
        ("rented, storage and traffic $", f"{seed.extra_usd:,.2f}"),
        ("rented, total $", f"{seed.rented_total_usd:,.2f}"),
        ("rented a day $", f"{seed.rented_usd_day:,.2f}"),
        ("pays back in days", f"{seed.payback_days:.1f}"),
        ("verdict", f"{seed.verdict.value} (green: under 30 days, amber: under 90, else red)"),
    ]
