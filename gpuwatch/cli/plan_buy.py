"""`gpuwatch plan buy`: own cards or rented ones; when does buying pay?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import Between, completes, config_option, json_option
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from decimal import Decimal

    from gpuwatch.app.plan_use import OwnRent
    from gpuwatch.domain.planning.buy import MachineUsage, OwnedMachine, RentComparison, RentTariff

_EXAMPLE_CARD = "RTX 4090"
_EXAMPLE_GB = 140.0
_EXAMPLE_USD = "2000"
_EXAMPLE_EXTRA = 10.0  # percent


class MachineOptions(NamedTuple):
    """What the options say of the machine that would be bought, as they were written."""

    card: str | None
    cards: int | None
    memory: float | None
    card_memory: float | None
    card_price: str | None
    card_watts: float | None
    other: str
    system_watts: float
    kwh: str
    cooling: float
    yearly: str


@click.command(
    cls=Command,
    examples=(
        "gpuwatch plan buy --card 'RTX 4090' --cards 4 --card-price 1500 --other 0 --rent 10",
        "gpuwatch plan buy --cards 4 --launches",
    ),
)
@click.option(
    "--card",
    default=None,
    metavar="GPU",
    help=f"Card to buy. Default: {_EXAMPLE_CARD}.",
    shell_complete=completes("gpus"),
)
@click.option(
    "--cards", type=click.IntRange(1, 10_000), default=None, help="Number of cards. Default: as many as hold --memory."
)
@click.option("--memory", type=Between(0.1, 1e6), default=None, help="GB that the model needs. Default: 140.")
@click.option("--card-memory", type=Between(0.1, 1e4), default=None, help="GB per card. Default: data sheet.")
@click.option("--card-price", default=None, metavar="USD", help="Price per card. Default: 2000 for the example's card.")
@click.option("--card-watts", type=Between(0, 1e4), default=None, help="Watts per card. Default: data sheet.")
@click.option("--other", default="5000", show_default=True, help="Price of the rest of the hardware, in USD.")
@click.option(
    "--system-watts", type=Between(0, 1e5), default=500.0, show_default=True, help="Watts of the rest of the hardware."
)
@click.option("--kwh", default="0.15", show_default=True, help="Price of electricity, in USD per kWh.")
@click.option(
    "--cooling", type=Between(0, 1000), default=30.0, show_default=True, help="Cooling, in percent of the power."
)
@click.option("--yearly", default="0", show_default=True, help="USD per year for space, repairs and risk.")
@click.option(
    "--slower",
    type=Between(0.01, 1000),
    default=None,
    help="How many times longer your own machine takes than the rented one. Default: 2.5 for the example, else 1.",
)
@click.option("--rent", default=None, metavar="USD", help="Price of the rented machine per hour. Default: 98.32.")
@click.option(
    "--rent-gpu",
    default=None,
    metavar='"8x GPU"',
    help="Or: take the cheapest such offer in the store.",
    shell_complete=completes("gpus"),
)
@click.option(
    "--extra", type=Between(0, 1000), default=None, help="Storage and traffic, in percent of the rent. Default: 10."
)
@click.option(
    "--days",
    type=Between(0.01, 36500),
    default=7.0,
    show_default=True,
    help="Days that the job takes on the rented machine.",
)
@click.option(
    "--hours-a-day", type=Between(0.01, 24), default=24.0, show_default=True, help="Hours per day that you rent."
)
@click.option("--loss", default="30-40", show_default=True, help="Percent of its value that hardware loses per year.")
@click.option("--reserved", default="40-60", show_default=True, help='Discount in percent, or "none".')
@click.option("--spot", default="70-90", show_default=True, help='Discount in percent, or "none".')
@click.option("--launches", "own_log", is_flag=True, help="Compare with what your own launches cost.")
@click.option("--since", default="90d", show_default=True, help="With --launches: how far back to read.")
@click.option(
    "--log-gpu", default=None, metavar="GPU", help="With --launches: only this GPU.", shell_complete=completes("gpus")
)
@click.option("--seed", is_flag=True, help="Show the sources' own calculation, to the cent.")
@json_option
@config_option
def buy(
    slower: float | None,
    rent: str | None,
    rent_gpu: str | None,
    extra: float | None,
    days: float,
    hours_a_day: float,
    loss: str,
    reserved: str,
    spot: str,
    own_log: bool,
    since: str,
    log_gpu: str | None,
    seed: bool,
    as_json: bool,
    config: str | None,
    **bought: object,
) -> int:
    """Compare owning cards with renting: what each costs, and when buying pays off.

    Without options: the source's example, 140 GB on RTX 4090 cards against a machine with 8 H100.

    Exit codes: 0 done, 2 usage, 3 your own launches are too few to tell.
    """
    from gpuwatch.app.plan_buy import plan_buy_json
    from gpuwatch.cli.options import parse_percents
    from gpuwatch.cli.output import json_out, note
    from gpuwatch.cli.plan_buy_rows import print_seed, print_table
    from gpuwatch.domain.planning.buy import compare_with_rent

    if seed:
        return print_seed(as_json)
    if rent is not None and rent_gpu is not None:
        raise UsageError("use either --rent or --rent-gpu")
    machine = MachineOptions(**bought)  # type: ignore[arg-type]
    is_example = machine.card is None and rent is None and rent_gpu is None and not own_log
    _warn_of_memory(machine)
    own = _own(machine, slower if slower is not None else 2.5 if is_example else 1.0)
    usage = _usage(days, hours_a_day)
    lost = parse_percents("--loss", loss, 101) or (_zero(),)
    found = []
    if not own_log or rent is not None or rent_gpu is not None:
        base = _tariff(config, rent, rent_gpu, extra)
        found = [compare_with_rent(own, one, usage, lost) for one in _tariffs(base, reserved, spot)]
        if rent is None and rent_gpu is None:
            note("rented: the example's machine, 8 H100 for $98.32 an hour; --rent or --rent-gpu say yours")
    log = _log(config, since, log_gpu) if own_log else None
    if log is not None and log.is_enough:
        found.append(_as_rented(own, log, usage, lost))
    if as_json:
        json_out(plan_buy_json(own, found, usage, lost, log))
    else:
        print_table(own, found, usage, lost, log)
    return Exit.CANNOT_TELL if log is not None and not log.is_enough else Exit.DONE


def _own(machine: MachineOptions, slower: float) -> OwnedMachine:
    from gpuwatch.cli.options import parse_usd
    from gpuwatch.domain.planning.buy import OwnedMachine, cards_needed

    memory_gb, watts = _data_sheet(machine)
    if machine.card is not None and machine.card_price is None:
        raise UsageError(f"give the price of one {machine.card}: --card-price USD")
    return OwnedMachine(
        card=machine.card or _EXAMPLE_CARD,
        cards=machine.cards or cards_needed(_decimal(machine.memory or _EXAMPLE_GB), memory_gb),
        card_usd=parse_usd(
            "--card-price", _EXAMPLE_USD if machine.card_price is None else machine.card_price, zero=True
        ),
        other_usd=parse_usd("--other", machine.other, zero=True),
        card_watts=watts,
        system_watts=_decimal(machine.system_watts),
        usd_kwh=parse_usd("--kwh", machine.kwh, zero=True),
        cooling_percent=_decimal(machine.cooling),
        yearly_usd=parse_usd("--yearly", machine.yearly, zero=True),
        slower=_decimal(slower),
    )


def _warn_of_memory(machine: MachineOptions) -> None:
    """Warn of cards that do not hold the model, but accept them: they may hold another one."""
    if machine.cards is None or machine.memory is None:
        return
    from gpuwatch.cli.output import note

    memory_gb, _ = _data_sheet(machine)
    if machine.cards * memory_gb < _decimal(machine.memory):
        note(f"{machine.cards} cards of {memory_gb:f} GB do not hold {machine.memory:g} GB")


def _data_sheet(machine: MachineOptions) -> tuple[Decimal, Decimal]:
    """GB and watts of one card: as said, else as its data sheet says."""
    from gpuwatch.app.past_prices import gpu_names_of
    from gpuwatch.domain.market.gpu_specs import gpu_specs

    name = machine.card or _EXAMPLE_CARD
    specs = gpu_specs().get(gpu_names_of(name)[0])
    memory, watts = machine.card_memory, machine.card_watts
    if specs is not None:
        memory = specs.memory_gib if memory is None else memory
        watts = specs.power_w if watts is None else watts
    if memory is None or watts is None:
        raise UsageError(f"no data sheet for {name}: use --card-memory and --card-watts")
    return _decimal(memory), _decimal(watts)


def _usage(days: float, hours_a_day: float) -> MachineUsage:
    from gpuwatch.domain.planning.buy import DAY_HOURS, MachineUsage

    return MachineUsage(job_hours=_decimal(days) * DAY_HOURS, hours_a_day=_decimal(hours_a_day))


def _tariff(config: str | None, rent: str | None, rent_gpu: str | None, extra: float | None) -> RentTariff:
    from gpuwatch.cli.options import parse_usd
    from gpuwatch.domain.planning.buy import SOURCE_TARIFF, RentTariff

    if rent_gpu is None:
        price = SOURCE_TARIFF.usd_hour if rent is None else parse_usd("--rent", rent)
        return RentTariff(
            name="on demand", usd_hour=price, extra_percent=_decimal(_EXAMPLE_EXTRA if extra is None else extra)
        )
    from gpuwatch.app.plan_fit import PriceFilter, cheapest, prices_now
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.domain.planning.figures import parse_gpu_config as gpus_of

    try:
        wanted = gpus_of(rent_gpu)
    except ValueError as fault:
        raise UsageError(f"--rent-gpu: {fault}") from fault
    count = wanted.count or 1
    name = re.sub(r"^[0-9]+\s*[x×*]\s*", "", wanted.text)
    found = cheapest(prices_now(load_settings(config), PriceFilter()), name, count)
    return RentTariff(name=f"{found.cards}× {found.gpu}", usd_hour=found.usd_hour, extra_percent=_decimal(extra or 0.0))


def _tariffs(base: RentTariff, reserved: str, spot: str) -> list[RentTariff]:
    from gpuwatch.cli.options import parse_percents
    from gpuwatch.domain.planning.buy import discounted

    return [
        base,
        *discounted(base, "reserved", parse_percents("--reserved", reserved)),
        *discounted(base, "spot", parse_percents("--spot", spot)),
    ]


def _log(config: str | None, since: str, gpu: str | None) -> OwnRent:
    from gpuwatch.app.past_prices import gpu_names_of
    from gpuwatch.app.plan_use import own_rent
    from gpuwatch.bootstrap import real_now
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli.options import moment

    names = None if gpu is None else gpu_names_of(gpu)
    return own_rent(load_settings(config), moment(since, real_now()), names)


def _as_rented(own: OwnedMachine, log: OwnRent, usage: MachineUsage, lost: tuple[Decimal, ...]) -> RentComparison:
    """As much as was really rented, at what it cost: as if on a machine with as many cards as the own one."""
    from msgspec.structs import replace

    from gpuwatch.domain.planning.buy import RentTariff, compare_with_rent

    a_day = log.gpu_hours / own.cards / log.days
    tariff = RentTariff(name="as you rented", usd_hour=log.usd / log.gpu_hours * own.cards)
    return compare_with_rent(own, tariff, replace(usage, hours_a_day=a_day), lost)


def _decimal(value: float) -> Decimal:
    from decimal import Decimal

    return Decimal(repr(value)).normalize()


def _zero() -> Decimal:
    return _decimal(0.0)
