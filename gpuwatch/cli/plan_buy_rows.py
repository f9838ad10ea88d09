"""What `gpuwatch plan buy` prints: owning beside each tariff, and the sources' own calculation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.tables import left, right

if TYPE_CHECKING:
    from decimal import Decimal

    from gpuwatch.app.plan_use import OwnRent
    from gpuwatch.domain.planning.buy import MachineUsage, OwnedMachine, RentComparison, SourceCalculation

_FEW_DAYS = 7


def print_table(
    own: OwnedMachine,
    found: Sequence[RentComparison],
    usage: MachineUsage,
    lost: Sequence[Decimal],
    log: OwnRent | None,
) -> None:
    """Figures down, tariffs across."""
    from gpuwatch.app.plan_buy import METHOD
    from gpuwatch.cli.output import note
    from gpuwatch.cli.tables import table

    click.echo(_machine(own, usage))
    if not found:
        note(_log_line(own, log) if log is not None else "")
        return
    click.echo()
    columns = (left(""), *(right(one.tariff.name, drop=at) for at, one in enumerate(found)))
    table(columns, _rows(found, usage, lost))
    click.echo()
    best = found[0]
    click.echo(f"{best.tariff.name}: {_VERDICTS[best.verdict.value]}")
    if log is not None:
        note(_log_line(own, log))
    note(METHOD)
    if any(one.tariff.name.startswith("spot") for one in found):
        note("spot: the cost of interruptions is not included; gpuwatch plan job computes it")
    if log is None and best.day_usd:
        note(_differs(own, best))


_VERDICTS = {
    "green": "buy: it pays back in under 30 days",
    "amber": "near: it pays back in 30 to 90 days, if that work goes on",
    "red": "rent: it pays back in no less than 90 days, or never",
}


def _machine(own: OwnedMachine, usage: MachineUsage) -> str:
    from gpuwatch.domain.market.money import dollars, price_text
    from gpuwatch.domain.planning.buy import DAY_HOURS

    days = usage.job_hours * own.slower / DAY_HOURS
    power = own.usd_hour * usage.job_hours * own.slower
    return (
        f"Own: {own.cards}× {own.card} for {dollars(own.investment_usd)}; {own.kilowatts:.2f} kW, "
        f"${price_text(own.usd_hour)} an hour under load.\n"
        f"The job takes {_figure(days)} days on it, and {dollars(power)} of power and cooling."
    )


def _rows(found: Sequence[RentComparison], usage: MachineUsage, lost: Sequence[Decimal]) -> list[tuple[str, ...]]:
    span = "–".join(dict.fromkeys(f"{one.normalize():f}" for one in (min(lost), max(lost))))
    return [
        ("$ an hour", *(f"{one.tariff.usd_hour:,.2f}" for one in found)),
        ("… with storage and traffic", *(f"{one.tariff.effective_usd_hour:,.2f}" for one in found)),
        (f"the job, {_figure(usage.job_hours)} h", *(f"{one.job_usd:,.2f}" for one in found)),
        ("a day of rent", *(f"{one.day_usd:,.2f}" for one in found)),
        ("saved a day by owning", *(f"{round(one.saved_usd_day, 2) + 0:,.2f}" for one in found)),
        ("pays back in days", *(_days(one.payback_days) for one in found)),
        ("", *(one.verdict.value for one in found)),
        (f"rented h in year 1, loss {span} %", *(_hours(one) for one in found)),
    ]


def _log_line(own: OwnedMachine, log: OwnRent) -> str:
    from gpuwatch.domain.market.money import dollars

    if not log.gpu_hours:
        return "not enough data: nothing was rented in that time"
    if not log.is_enough:
        return "not enough data: your first launch is not a day old"
    share = log.gpu_hours / own.cards / log.days * own.slower / 24 * 100
    beyond = " (more than it can do: the rest stays rented)" if share > 100 else ""
    short = f"; only {_figure(log.days)} days: a weak guess" if log.days < _FEW_DAYS else ""
    return (
        f"as you rented: {log.launches} launches since {log.since:%Y-%m-%d}, {log.gpu_hours:,.1f} GPU-hours for "
        f"{dollars(log.usd)}; your own cards would be busy {share:.0f} % of the time{beyond}{short}"
    )


def _differs(own: OwnedMachine, first: RentComparison) -> str:
    """Where and why this is not what the source prints."""
    plain = own.investment_usd / first.day_usd
    return (
        "the source's formula (--seed) leaves out the own running cost and the difference in speed, and would say "
        f"{plain:.2f} days; here the own machine takes {_times(own.slower)} as long (--slower)"
    )


def _days(days: Decimal | None) -> str:
    return "never" if days is None else f"{days:,.1f}" if days >= 10 else f"{days:.2f}"


def _hours(one: RentComparison) -> str:
    low, high = one.hours_a_year
    texts = ["never" if hours is None else f"{hours:,.0f}" for hours in (low, high)]
    return "–".join(dict.fromkeys(texts))


def _times(slower: Decimal) -> str:
    return "just" if slower == 1 else f"{_figure(slower)} times"


def _figure(value: Decimal) -> str:
    return f"{value:,.2f}".rstrip("0").rstrip(".")


# --- as the sources print ---------------------------------------------------------------------------------------------


def print_seed(as_json: bool) -> int:
    """The calculator and the division of the sources, and the corrected result of the first."""
    from decimal import Decimal

    from gpuwatch.app.plan_buy import plan_buy_sources_json
    from gpuwatch.domain.planning.buy import simple_payback, source_calculation

    seed, plain = source_calculation(), simple_payback(Decimal(6000) + Decimal(1000), Decimal(10))
    if as_json:
        from gpuwatch.cli.output import json_out

        json_out(plan_buy_sources_json(seed, plain))
        return Exit.DONE
    from gpuwatch.cli.output import note
    from gpuwatch.cli.tables import table
    from gpuwatch.domain.planning.buy import SOURCE_SLOWER, source_payback_corrected

    table((left("6× RTX 4090 against p5.48xlarge, 7 days"), right("")), _seed_rows(seed))
    click.echo()
    click.echo(f"simple: $7,000 ÷ $10 an hour = {plain.hours:.0f} h = {plain.days:.2f} days")
    running, slower, both = source_payback_corrected()
    note(
        f"corrected: {running:.2f} days with the own running cost taken off, {slower:.2f} if the own cards take "
        f"{SOURCE_SLOWER} times as long, {both:.2f} with both; the source's count of cards (140 // 24 + 1) is one too "
        "many where it divides exactly"
    )
    note("for your own figures: gpuwatch plan buy")
    return Exit.DONE


def _seed_rows(seed: SourceCalculation) -> list[tuple[str, str]]:
    return [
        ("cards", str(seed.cards)),
        ("investment $", f"{seed.investment_usd:,.2f}"),
        ("power kWh", f"{seed.kilowatt_hours:.1f}"),
        ("operating $", f"{seed.operating_usd:,.2f}"),
        ("own in all $", f"{seed.own_total_usd:,.2f}"),
        ("rented compute $", f"{seed.compute_usd:,.2f}"),
        ("rented storage and traffic $", f"{seed.extra_usd:,.2f}"),
        ("rented in all $", f"{seed.rented_total_usd:,.2f}"),
        ("rented a day $", f"{seed.rented_usd_day:,.2f}"),
        ("pays back in days", f"{seed.payback_days:.1f}"),
        ("verdict", f"{seed.verdict.value} (under 30 days; amber to 90, then red)"),
    ]
