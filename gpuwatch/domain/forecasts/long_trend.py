"""How a GPU's rent changes over years: percent a year from quarterly prices, with an interval. Pure.

Logarithms of prices are a random walk with a drift: what a series changed by between two of its quarters, divided by
the time between them. Series of different sources count alike. Their prices move rarely and far, so that a calm series
knows little about the next step: the spread is the larger of the card's own and that of all cards together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from gpuwatch.domain.history.nonparametric import t_quantile

LEAST_QUARTERS: Final = 4  # of all series together; fewer say nothing about a year
A_YEAR: Final = 4
_LEVEL: Final = 0.975  # both ends of a 95 % interval
TREND_METHOD_TEXT: Final = (
    "mean change of the logarithm per quarter, within each series; 95 % interval by Student's t, with the larger of "
    "the card's own spread and that of all cards"
)


class QuarterPrice(NamedTuple):
    """The price of a GPU-hour in a quarter, of the same offers in every quarter of its series."""

    source: str
    spot: bool
    gpu: str
    quarter: int  # year × 4 + 0 to 3
    usd_gpu_hour: float


class _Change(NamedTuple):
    log: float  # of the price ratio
    quarters: int  # between the two prices


class PriceTrend(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a price per year, as fractions: -0.1 is 10 % less a year later.

    Attributes:
        low, high: ends of the 95 % interval.
        quarters: quarters between the prices, of all series together.
        changes: pairs of neighbouring quarters.
        drift, spread: of the logarithm, per quarter.
        freedom: of Student's t.
    """

    a_year: float
    low: float
    high: float
    quarters: int
    changes: int
    series: int
    sources: tuple[str, ...]
    first: int
    last: int
    drift: float
    spread: float
    freedom: int

    def price_ratio(self, quarters: int) -> tuple[float, float]:
        """The 95 % interval of a price so many quarters later, divided by today's."""
        reach = t_quantile(_LEVEL, self.freedom) * self.spread * math.sqrt(quarters + quarters**2 / self.quarters)
        return math.exp(self.drift * quarters - reach), math.exp(self.drift * quarters + reach)


def parse_quarter(text: str) -> int:
    """ "2024Q3" as a number of quarters. Raises ValueError."""
    year, _, quarter = text.partition("Q")
    if quarter not in {"1", "2", "3", "4"}:
        raise ValueError(f"{text!r}: expected a quarter such as 2024Q3")
    return int(year) * A_YEAR + int(quarter) - 1


def quarter_text(quarter: int) -> str:
    """The quarter as "2024Q3"."""
    return f"{quarter // A_YEAR}Q{quarter % A_YEAR + 1}"


def price_trend(prices: Collection[QuarterPrice], gpus: Collection[str], *, spot: bool) -> PriceTrend | None:
    """The trend of these GPUs' prices; None: fewer than four quarters are known.

    Args:
        prices: also of other GPUs: they tell how far prices move.
    """
    of_kind = [price for price in prices if price.spot is spot]
    groups: dict[str, list[QuarterPrice]] = defaultdict(list)
    for price in of_kind:
        groups["" if price.gpu in gpus else price.gpu].append(price)
    own = groups.get("", [])
    changes = _changes(own)
    quarters = sum(change.quarters for change in changes)
    if quarters < LEAST_QUARTERS:
        return None
    drift = _drift(changes)
    every = [_changes(group) for group in groups.values()]
    spread, freedom = max(_spread([changes]), _spread(every))
    reach = A_YEAR * t_quantile(_LEVEL, freedom) * spread / math.sqrt(quarters)
    return PriceTrend(
        a_year=math.expm1(A_YEAR * drift),
        low=math.expm1(A_YEAR * drift - reach),
        high=math.expm1(A_YEAR * drift + reach),
        quarters=quarters,
        changes=len(changes),
        series=len({(price.source, price.gpu) for price in own}),
        sources=tuple(sorted({price.source for price in own})),
        first=min(price.quarter for price in own),
        last=max(price.quarter for price in own),
        drift=drift,
        spread=spread,
        freedom=freedom,
    )


def _changes(prices: Iterable[QuarterPrice]) -> list[_Change]:
    series: dict[tuple[str, str], list[QuarterPrice]] = defaultdict(list)
    for price in prices:
        series[price.source, price.gpu].append(price)
    return [
        _Change(math.log(after.usd_gpu_hour / before.usd_gpu_hour), after.quarter - before.quarter)
        for one in series.values()
        for before, after in pairwise(sorted(one, key=lambda price: price.quarter))
    ]


def _drift(changes: Sequence[_Change]) -> float:
    return sum(change.log for change in changes) / sum(change.quarters for change in changes)


def _spread(groups: Sequence[Sequence[_Change]]) -> tuple[float, int]:
    """The standard deviation of a quarter's change around each group's own drift, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for changes in groups:
        if len(changes) > 1:
            drift = _drift(changes)
            squares += sum((change.log - drift * change.quarters) ** 2 / change.quarters for change in changes)
            freedom += len(changes) - 1
    return (math.sqrt(squares / freedom), freedom) if freedom else (0.0, 1)
