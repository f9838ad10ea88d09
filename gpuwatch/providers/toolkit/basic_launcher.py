"""The base of a launcher whose provider has no bids, no price increases, no invoices and no balance."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from gpuwatch.errors import OrderRefused, RefusalKind
from gpuwatch.ports import PriceIncrease, ProviderCharge


class BasicLauncher:
    """The base of a launcher whose provider rents on demand at a fixed price, and reports nothing but instances.

    A subclass adds `create`, `list_instances` and `destroy`.
    """

    name = ""

    def credit_usd(self) -> float | None:
        """None: the provider does not report it."""
        return None

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        """The provider takes no bids. Raises OrderRefused."""
        raise OrderRefused(f"{self.name}: this provider takes no bids", RefusalKind.BAD_ORDER)

    def price_increases(self) -> Sequence[PriceIncrease]:
        """Empty: a running contract keeps its price."""
        return ()

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        """There is no increase to answer. Raises OrderRefused."""
        raise OrderRefused(f"{self.name}: this provider proposes no price increases", RefusalKind.BAD_ORDER)

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        """None: the provider does not report them."""
        return None
