"""The interval of `gpuwatch forecasts trend` on prices that were not used to fit it."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.evidence.claims import Claim, Holds, Section, at_least, clustered_error
from gpuwatch.app.forecasts.trend import public_prices
from gpuwatch.domain.forecasts.long_trend import QuarterPrice, parse_quarter, price_trend

CUTS = ("2023Q4", "2024Q2", "2024Q4")  # fitted up to here
_AHEAD = 5  # quarters


class Later(NamedTuple):
    """A price after the cut ÷ the last one before, and the interval that was stated for it."""

    cut: str
    source: str
    ratio: float
    low: float
    high: float

    @property
    def is_within(self) -> bool:
        """Was it in the interval?"""
        return self.low - 1e-9 <= self.ratio <= self.high + 1e-9


def later_prices(cut: str) -> list[Later]:
    """The last price of each series within five quarters after the cut."""
    at = parse_quarter(cut)
    fitted = [price for price in public_prices() if price.quarter <= at]
    series: dict[tuple[str, bool, str], list[QuarterPrice]] = {}
    for price in sorted(public_prices(), key=lambda one: one.quarter):
        series.setdefault((price.source, price.spot, price.gpu), []).append(price)
    found = []
    for (source, spot, gpu), prices in series.items():
        before = [price for price in prices if price.quarter <= at]
        after = [price for price in prices if at < price.quarter <= at + _AHEAD]
        trend = price_trend(fitted, (gpu,), spot=spot)
        if before and after and trend is not None:
            low, high = trend.price_ratio(after[-1].quarter - before[-1].quarter)
            found.append(Later(cut, source, after[-1].usd_gpu_hour / before[-1].usd_gpu_hour, low, high))
    return found


def trend_section() -> Section:
    """Return the claims."""
    by_cut = {cut: later_prices(cut) for cut in CUTS}
    every = [one for found in by_cut.values() for one in found]
    within = [float(one.is_within) for one in every]
    error = clustered_error(within, [(one.cut, one.source) for one in every])
    text = "a price at most five quarters later is in its 95 % interval"
    claims = [at_least(text, sum(within) / len(within), 0.95, f"{len(every)} prices", error)]
    for cut, found in by_cut.items():
        held = f"{sum(one.is_within for one in found)} of {len(found)}"
        claims.append(Claim(f"… fitted up to {cut}", held, "", f"{len(found)} prices", Holds.NOT_CLAIMED))
    last = by_cut[CUTS[-1]]
    fell, rose = sum(one.ratio < 1 for one in last), sum(one.ratio > 1 for one in last)
    claims.append(
        Claim(
            "an article's forecast: prices fall in 2025",
            f"{fell} fell, {rose} rose, {len(last) - fell - rose} stayed",
            "",
            f"{len(last)} list prices of AWS",
            Holds.NOT_CLAIMED,
        )
    )
    notes = [
        "each series of long-prices.csv, fitted up to the end of a quarter, compared with its last price within five "
        "quarters; ± is 95 % of chance, with the prices of one source and cut counted as one",
        "what missed: AWS cut the A100 by 33 % and the H100 by 44 % in 2025, after years without a change",
    ]
    return Section("Prices over years", "trend.md", claims, notes)
