"""Figures beside the questions of `gpuwatch init`: today's cheapest price, and how often prices fell so low. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.market.money import price_text

_CENT = Decimal("0.01")
_MOST_OTHERS = 3  # markets beside the cheapest
_NEAR = Decimal("0.3")  # of today's price
Rates = Mapping[str, Decimal]  # provider → the fraction added to its listed prices


class LowPrice(msgspec.Struct, frozen=True):
    """The lowest listed price of a GPU-hour at one provider; `day` of a recorded one, such as "2026-02-27"."""

    provider: str
    usd_gpu_hour: Decimal
    day: str = ""

    def compared(self, rates: Rates) -> Decimal:
        """The price with the provider's reserve or commission, as limits compare it."""
        return self.usd_gpu_hour * (1 + rates.get(self.provider, Decimal(0)))


class PriceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one GPU's prices.

    Attributes:
        today: of each market that sells it now.
        recorded: of past days.
        source: whose recorded prices: "your own history".
        is_own: they are the owner's, recent, and of what the watch accepts.
        faults: one line for each market that did not answer.
    """

    today: tuple[LowPrice, ...] = ()
    recorded: tuple[LowPrice, ...] = ()
    source: str = ""
    is_own: bool = False
    faults: tuple[str, ...] = ()

    def cheapest(self, rates: Rates) -> LowPrice | None:
        """Today's cheapest; None: nothing is on sale, or no market answered."""
        return min(self.today, key=lambda low: low.compared(rates), default=None)

    def daily_lows(self, rates: Rates) -> list[Decimal]:
        """The lowest compared price of each recorded day, ascending."""
        by_day: dict[str, Decimal] = {}
        for low in self.recorded:
            price = low.compared(rates)
            by_day[low.day] = min(price, by_day.get(low.day, price))
        return sorted(by_day.values())

    def suggested(self, rates: Rates) -> Decimal | None:
        """The price that at least half of the recorded days reached, else today's cheapest; None: nothing is known.

        Public prices are older, and those of any host may be of none that the watch accepts: where they are far from
        today's price, that counts.
        """
        lows, cheapest = self.daily_lows(rates), self.cheapest(rates)
        half = lows[(len(lows) - 1) // 2] if lows else None
        now = None if cheapest is None else cheapest.compared(rates)
        if half is not None and (self.is_own or now is None or abs(half - now) <= _NEAR * now):
            return rounded_up(half)
        return None if now is None else rounded_up(now)


def rounded_up(price: Decimal) -> Decimal:
    """To a cent, and a price under ten cents to a tenth of one: the price itself is not above it."""
    return price.quantize(_CENT if price >= 10 * _CENT else _CENT / 10, rounding=ROUND_CEILING)


def shown(price: Decimal) -> str:
    """ "$1.48": cents are enough beside a question, except for the cheapest cards."""
    return f"${price_text(price, most=2 if price >= 10 * _CENT else 3)}"


def today_text(figures: PriceFigures, rates: Rates, titles: Mapping[str, str]) -> str:
    """ "from $0.42/GPU-h today at vast.ai ($0.35 on the bill), RunPod $0.69"; without an offer, why there is none."""
    if not figures.today:
        return "today's price is unknown" if figures.faults else "not on sale today"
    low, *others = sorted(figures.today, key=lambda one: one.compared(rates))
    price, bill = shown(low.compared(rates)), shown(low.usd_gpu_hour)
    beside = "" if price == bill else f" ({bill} on the bill)"
    dearer = [f"{titles.get(one.provider, one.provider)} {shown(one.compared(rates))}" for one in others]
    cheapest = f"from {price}/GPU-h today at {titles.get(low.provider, low.provider)}{beside}"
    return ", ".join([cheapest, *dearer[:_MOST_OTHERS]])


def recorded_text(figures: PriceFigures, rates: Rates) -> str:
    """The lowest prices of the recorded days, and the rank of today's among them; empty: nothing is recorded."""
    lows, now = figures.daily_lows(rates), figures.cheapest(rates)
    if not lows:
        return ""
    span = shown(lows[0]) if shown(lows[0]) == shown(lows[-1]) else f"{shown(lows[0])} to {shown(lows[-1])}"
    text = f"lowest of {count_text(len(lows), 'recorded day')}: {span} ({figures.source})"
    if now is None:
        return text
    cheaper = sum(low < now.compared(rates) for low in lows)
    return f"{text}; {f'{cheaper} of them' if cheaper else 'none'} cheaper than today"


def limit_text(figures: PriceFigures, limit: Decimal, rates: Rates) -> str:
    """What a limit means: how far it is from today's price, and how often it was reached; empty: nothing is known."""
    low, lows, parts = figures.cheapest(rates), figures.daily_lows(rates), []
    if low is not None:
        over = (low.compared(rates) - limit) / limit
        parts.append(
            "an offer is at or under it now" if over <= 0 else f"today's cheapest is {over * 100:.0f} % above it"
        )
    if lows:
        parts.append(f"reached on {sum(one <= limit for one in lows)} of {count_text(len(lows), 'recorded day')}")
    return "; ".join(parts)


def low_prices(lows: Iterable[tuple[str, str, Decimal]]) -> tuple[LowPrice, ...]:
    """From (provider, day, USD per GPU-hour): the lowest of each provider and day."""
    by_key: dict[tuple[str, str], Decimal] = {}
    for provider, day, usd in lows:
        by_key[provider, day] = min(usd, by_key.get((provider, day), usd))
    return tuple(
        LowPrice(provider, usd, day) for (provider, day), usd in sorted(by_key.items(), key=lambda one: one[0])
    )
