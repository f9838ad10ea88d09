"""What a launcher says where a provider has no such thing: no bids, no proposals of prices, no charges, no balance."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from gpuwatch.errors import OrderRefused, RefusalKind
from gpuwatch.ports import PriceIncrease, ProviderCharge


class BasicLauncher:
    """The base of a launcher whose provider rents on demand at a fixed price, and tells nothing but instances.

    What is left to write: `create`, `list_instances`, `destroy`.
    """

    name = ""

    def credit_usd(self) -> float | None:
        """The provider does not say."""
        return None

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        """Nothing is rented by bids there. Raises OrderRefused."""
        raise OrderRefused(f"{self.name}: nothing is rented by bids there", RefusalKind.BAD_ORDER)

    def price_increases(self) -> Sequence[PriceIncrease]:
        """A running contract keeps its price there."""
        return ()

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        """There is nothing to answer. Raises OrderRefused."""
        raise OrderRefused(f"{self.name}: no price increase is proposed there", RefusalKind.BAD_ORDER)

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        """The provider does not tell."""
        return None
