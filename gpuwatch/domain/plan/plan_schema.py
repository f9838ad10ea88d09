"""The keys of `gpuwatch plan size`, `plan fit` and `plan buy`, each declared once. Pure.

A key is typed as `--set key=value`, as an option if the command has one for it, or stands in `[plan]` of a file.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PlainValidator

from gpuwatch.domain.plan.fit import CostMeasure, GpuTask, LatencyClass, PricedClass
from gpuwatch.domain.plan.roofline import TrainingMethod
from gpuwatch.domain.plan.workload import ModelKeys
from gpuwatch.domain.setup.fields import (
    MAX_MEASURE,
    Line,
    Measure,
    Switch,
    Table,
    Whole,
    Words,
    exact_number,
    one_or_many,
)

_YEAR_DAYS = Decimal(365)
_W_A_KW = 1000


def _dollars(text: str) -> Decimal:
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except ArithmeticError:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 < amount <= 10**9:
        raise ValueError(f"{text.strip()!r}: expected USD above 0, such as 3.50")
    return amount


def _price(value: Any) -> PricedClass:
    """ "B200=9.50-12.00": a GPU and its price per hour."""
    if isinstance(value, PricedClass):
        return value
    name, _, price = value.rpartition("=") if isinstance(value, str) else ("", "", "")
    if not name.strip() or not price.strip():
        raise ValueError(f"{value!r}: expected GPU=USD per GPU-hour, such as B200=9.50 or B200=9.50-12.00")
    low, *high = [_dollars(bound) for bound in price.split("-", maxsplit=1)]
    if high and high[0] < low:
        raise ValueError(f"{value!r}: expected the lower price first")
    return PricedClass(
        gpu=name.strip(), cards=1, usd_hour=low, high_usd_hour=high[0] if high else None, any_number=True
    )


def _prices(value: Any) -> tuple[PricedClass, ...]:
    values = one_or_many(value)
    if not isinstance(values, (list, tuple)):
        raise ValueError('expected a list such as ["B200=9.50"]')  # noqa: TRY004 pydantic makes faults of these
    return tuple(_price(one) for one in values)


def _percents(value: Any) -> tuple[Decimal, ...]:
    """One percentage or a range, "40-60"; "none" and 0 mean no percentage."""
    if isinstance(value, tuple):
        return value
    text = str(value).strip().lower()
    if text in {"", "none", "0"}:
        return ()
    try:
        percents = tuple(Decimal(part.strip().removesuffix("%")) for part in text.split("-"))
    except ArithmeticError:
        percents = ()
    if not 1 <= len(percents) <= 2 or not all(one.is_finite() and 0 <= one <= 100 for one in percents):
        raise ValueError("expected percent, such as 40 or 40-60, or none")
    return tuple(sorted(set(percents)))


def _discounts(value: Any) -> tuple[Decimal, ...]:
    percents = _percents(value)
    if percents and percents[-1] >= 100:
        raise ValueError("expected percent under 100, such as 40 or 40-60, or none")
    return percents


Prices = Annotated[tuple[PricedClass, ...], PlainValidator(_prices)]
Percents = Annotated[tuple[Decimal, ...], PlainValidator(_percents)]
Discounts = Annotated[tuple[Decimal, ...], PlainValidator(_discounts)]
Exact = Annotated[Decimal, BeforeValidator(exact_number), Field(ge=0, le=MAX_MEASURE)]
Positive = Annotated[Exact, Field(gt=0)]


class OfferKeys(Table):
    """The keys that select current offers."""

    gpu: Words = Field(default=(), description="Only offers with this GPU; may be repeated.")
    spot: Literal["no", "only", "any"] = Field(default="no", description="Spot (interruptible) offers.")
    listed: Switch = Field(default=False, description="Include list prices, without proof of stock.")
    when: Line | None = Field(
        default=None, description='A condition on the offer, as in a watch: "ecc and disk_bw >= 1000".'
    )
    any_price: Switch = Field(default=False, description="Rank implausibly cheap offers with the others.")
    poll: Switch = Field(default=False, description="Poll the providers instead of reading the store.")
    data: str | None = Field(default=None, description="Read the newest poll of this file instead of the store.")


class SizeRequest(ModelKeys):
    """A model in use, and the cards that may hold it."""

    gpu: Words = Field(default=(), description="Only this GPU; may be repeated.")
    max_cards: Whole = Field(default=64, ge=1, le=4096, description="Largest number of cards.")
    fill: Measure = Field(default=90.0, gt=0, le=100, description="Percent of each card that may be filled.")


class FitRequest(OfferKeys, ModelKeys):
    """The purpose of the GPU, and the prices to compare."""

    task: GpuTask | None = Field(default=None, description="Kind of task.")
    vram: Measure | None = Field(
        default=None, le=10**6, description="GPU memory the task needs, in GB; see `plan size`."
    )
    latency: LatencyClass = Field(
        default=LatencyClass.BATCH, description="Inference speed of one stream: 50 tokens per second, 10, or any."
    )
    max_cards: Whole = Field(default=8, ge=1, le=4096, description="Largest number of cards.")
    any_link: Switch = Field(default=False, description="For training, accept several cards without NVLink.")
    price: Prices = Field(
        default=(), description="GPU=USD[-USD]: price per GPU-hour to use instead of live prices; may be repeated."
    )
    provider: str | None = Field(default=None, description="Only this provider.")
    by: CostMeasure | None = Field(
        default=None, description="Sort order. Default: compute for training, else the hourly price."
    )
    against: str | None = Field(default=None, description="Compare every price with this GPU.")
    limit: Whole = Field(default=15, ge=1, le=500, description="Number of classes.")

    @property
    def work_method(self) -> TrainingMethod:
        """A task of inference is also a method."""
        is_named = "method" in self.model_fields_set
        return TrainingMethod.INFERENCE if self.task is GpuTask.INFERENCE and not is_named else self.method


class OwnedMachine(Table):
    """A machine that the owner buys. The defaults are the example of the articles."""

    card: Line = Field(default="RTX 4090", description="Card to buy.")
    cards: Whole = Field(default=6, ge=1, le=10_000, description="Number of cards. Default: as many as `memory` needs.")
    card_price: Exact = Field(default=Decimal(2000), description="USD per card.")
    card_watts: Annotated[Exact, Field(le=10**4)] = Field(
        default=Decimal(450), description="Watts per card. Default: data sheet."
    )
    other: Exact = Field(default=Decimal(5000), description="Price of the rest of the hardware, in USD.")
    system_watts: Annotated[Exact, Field(le=10**5)] = Field(
        default=Decimal(500), description="Watts of the rest of the hardware."
    )
    kwh: Exact = Field(default=Decimal("0.15"), description="Price of electricity, in USD per kWh.")
    cooling: Annotated[Exact, Field(le=1000)] = Field(
        default=Decimal(30), description="Cooling, in percent of the power."
    )
    yearly: Exact = Field(default=Decimal(0), description="USD per year for space, repairs and risk.")
    setup_weeks: Annotated[Exact, Field(le=104)] = Field(
        default=Decimal(0), description="Weeks until the machine works; until then the work is rented."
    )
    setup_hours: Annotated[Exact, Field(le=10**5)] = Field(
        default=Decimal(0), description="Hours of people to set it up: drivers, Docker, network."
    )
    upkeep_hours: Annotated[Exact, Field(le=10**5)] = Field(
        default=Decimal(0), description="Hours of people a month to keep it running."
    )
    people_usd_hour: Exact = Field(default=Decimal(0), description="USD per hour of people.")
    slower: Annotated[Positive, Field(ge=Decimal("0.01"), le=1000)] = Field(
        default=Decimal(1),
        description="Runtime on it as a multiple of the rented machine's. Default: 2.5 for the example, else 1.",
    )

    @property
    def investment_usd(self) -> Decimal:
        """The cost before the first hour."""
        return self.cards * self.card_price + self.other

    @property
    def setup_usd(self) -> Decimal:
        """What people cost before the first hour; nobody buys it back."""
        return self.setup_hours * self.people_usd_hour

    @property
    def yearly_usd(self) -> Decimal:
        """What a year costs, used or not."""
        return self.yearly + 12 * self.upkeep_hours * self.people_usd_hour

    @property
    def kilowatts(self) -> Decimal:
        """Power under load."""
        return (self.cards * self.card_watts + self.system_watts) / _W_A_KW

    @property
    def usd_hour(self) -> Decimal:
        """Power and cooling for an hour under load."""
        return self.kilowatts * self.kwh * (1 + self.cooling / 100)

    def running_usd_day(self, hours: Decimal) -> Decimal:
        """The running cost of a day with this many hours of work."""
        return self.usd_hour * hours + self.yearly_usd / _YEAR_DAYS


class BuyRequest(OwnedMachine):
    """The hardware, the work, and the rent to compare with."""

    memory: Annotated[Exact, Field(ge=Decimal("0.1"), le=10**6)] = Field(
        default=Decimal(140), description="GPU memory the model needs, in GB."
    )
    card_memory: Annotated[Exact, Field(ge=Decimal("0.1"), le=10**4)] | None = Field(
        default=None, description="GB per card. Default: data sheet."
    )
    days: Annotated[Exact, Field(ge=Decimal("0.01"), le=36_500)] = Field(
        default=Decimal(7), description="Duration of the job on the rented machine, in days."
    )
    hours_a_day: Annotated[Exact, Field(ge=Decimal("0.01"), le=24)] = Field(
        default=Decimal(24), description="Hours per day that you rent."
    )
    loss: Percents = Field(
        default=(Decimal(30), Decimal(40)), description="Percent of its value that hardware loses per year."
    )
    rent: Positive = Field(default=Decimal("98.32"), description="Price of the rented machine per hour.")
    rent_gpu: str | None = Field(
        default=None, description='Alternative, "8x GPU": use the cheapest such offer in the store.'
    )
    extra: Annotated[Exact, Field(le=1000)] = Field(
        default=Decimal(10), description="Storage and traffic, in percent of the rent. With rent_gpu: 0."
    )
    reserved: Discounts = Field(default=(Decimal(40), Decimal(60)), description='Discount in percent, or "none".')
    spot: Discounts = Field(default=(Decimal(70), Decimal(90)), description='Discount in percent, or "none".')
    years: Whole = Field(
        default=1, ge=1, le=20, description="Years of use: adds what owning, then reselling, has cost by each of them."
    )
    rent_change: Annotated[Decimal, BeforeValidator(exact_number), Field(ge=-90, le=200)] | None = Field(
        default=None, description="Percent a year by which the rent changes; -10: it falls. Default: the trend's."
    )
    trend: str | None = Field(
        default=None, description="GPU whose rent over years counts (forecasts trend). Default: the rented one."
    )
    launches: Switch = Field(default=False, description="Compare with what your own launches cost.")
    since: Line = Field(default="90d", description="With launches: start of the period.")
    log_gpu: str | None = Field(default=None, description="With launches: only this GPU.")

    @property
    def has_rent(self) -> bool:
        """Does the request state what is rented?"""
        return bool({"rent", "rent_gpu"} & self.model_fields_set)


class ForRequest(BuyRequest):
    """What an owner needs; what is not stated comes from the case. Own cards: as for `plan buy`."""

    unused_keys: ClassVar[frozenset[str]] = frozenset(
        {"card", "cards", "memory", "days", "rent_gpu", "launches", "since", "log_gpu"}
    )

    gpu: Line = Field(default="4x RTX 4090", description='GPUs at once, "8x H100 SXM", rented or owned.')
    spot_usd: Exact | None = Field(
        default=None, description="Spot price of the machine per hour. Default: the store's; else `spot` off the rent."
    )
    term_years: Whole = Field(default=1, ge=1, le=5, description="Years of a reservation or savings plan.")
    peak_gpus: Whole = Field(
        default=0, ge=0, le=10_000, description="GPUs at once at peaks, in place of your launches' load."
    )
    peak_hours: Annotated[Exact, Field(le=24)] = Field(
        default=Decimal(0), description="Hours per day of such peaks, on average."
    )
    credit: Exact = Field(default=Decimal(0), description="USD of credits that you have.")
    credit_days: Whole = Field(default=365, ge=1, le=3650, description="Days until your credits expire.")
    credit_provider: Line | None = Field(default=None, description="Provider at whose prices they are used.")
    poll: Switch = Field(default=False, description="Poll the providers instead of reading the store.")
    spot: Discounts = Field(
        default=(Decimal(70), Decimal(90)),
        description='Discount in percent where no spot price is known: the first, or "none".',
    )
    rent: Positive = Field(
        default=Decimal("98.32"), description="Price of the machine per hour. Default: the cheapest offer's."
    )
    hours_a_day: Annotated[Exact, Field(ge=Decimal("0.01"), le=24)] = Field(
        default=Decimal(24), description="Hours per day that you need it. Default: your launches', else the case's."
    )
    years: Whole = Field(default=1, ge=1, le=20, description="Years of use. Default: the case's.")
    extra: Annotated[Exact, Field(le=1000)] = Field(
        default=Decimal(0), description="Storage and traffic, in percent of the rent."
    )
    card_price: Exact = Field(
        default=Decimal(0), description="USD per card. Default: the articles', for RTX 4090 and H100 SXM."
    )
    setup_weeks: Annotated[Exact, Field(le=104)] = Field(
        default=Decimal(3), description="Weeks until own cards work; the articles say 2 to 4."
    )
    setup_hours: Annotated[Exact, Field(le=10**5)] = Field(
        default=Decimal(40), description="Hours of people to set own cards up (an assumption)."
    )
    upkeep_hours: Annotated[Exact, Field(le=10**5)] = Field(
        default=Decimal(8), description="Hours of people a month to keep them running (an assumption)."
    )
    people_usd_hour: Exact = Field(default=Decimal(50), description="USD per hour of people (an assumption).")
