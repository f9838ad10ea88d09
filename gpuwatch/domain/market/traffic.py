"""What the traffic of one launch adds to an hour of an offer: GB × the offer's prices per GB, spread over its runtime.

The prices are rounded to whole micro-dollars per GB, as the history keeps them, so that an offer of an answer and the
same offer of the store cost the same. Pure.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

_HOUR_S = 3600
_MICRO = 1_000_000


class TrafficPrices(Protocol):
    """An offer, or what a launch was promised: US dollars per GB; None: not stated by the provider."""

    @property
    def download_usd_gb(self) -> float | None:
        """The price of one GB to the machine."""

    @property
    def upload_usd_gb(self) -> float | None:
        """The price of one GB from the machine."""


class Traffic(NamedTuple):
    """The traffic of one launch, and the time over which its cost is spread, for a price per hour."""

    download_gb: float
    upload_gb: float
    runtime_s: float = _HOUR_S

    def microusd(self, prices: TrafficPrices) -> int:
        """Return its whole cost; a direction without a known price adds nothing."""
        return round(self._cost(prices))

    def microusd_hour(self, prices: TrafficPrices) -> int:
        """Return its cost per hour of the whole offer."""
        return round(self._cost(prices) * _HOUR_S / self.runtime_s)

    def _cost(self, prices: TrafficPrices) -> float:
        cost = self.download_gb * (microusd_gb(prices.download_usd_gb) or 0)
        return cost + self.upload_gb * (microusd_gb(prices.upload_usd_gb) or 0)

    def unpriced(self, prices: TrafficPrices) -> tuple[str, ...]:
        """Return the directions whose price is unknown, which is not the same as free."""
        wanted = (
            ("download", self.download_gb, prices.download_usd_gb),
            ("upload", self.upload_gb, prices.upload_usd_gb),
        )
        return tuple(name for name, gb, usd_gb in wanted if gb and usd_gb is None)


def microusd_gb(usd_gb: float | None) -> int | None:
    """Return a price per GB in whole micro-dollars; None: unknown."""
    return None if usd_gb is None else round(usd_gb * _MICRO)
