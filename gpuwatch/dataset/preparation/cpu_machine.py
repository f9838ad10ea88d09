"""The machine that prepares data: the cheapest one without GPUs, or the articles' prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gpuwatch.app.market.current_offers import current_offers, is_old
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.market.money import MICRO
from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.domain.plan.figures import FigureRange, exactly
from gpuwatch.engine.market.browse import offer_filter

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

ARTICLES_USD_HOUR: Final = FigureRange(0.03, 0.10)  # the default of `plan job --set prepare_usd_hour`
_POLL_WITHIN_S: Final = 30.0


class CpuMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine without GPUs.

    Attributes:
        usd_hour: of the whole machine, commission included.
        source: where the price is from.
        offers: how many offers it is the cheapest of; 0: it is none.
        processors: None: not stated.
    """

    usd_hour: FigureRange
    source: str
    offers: int = 0
    processors: float | None = None


def stated_machine(usd_hour: float) -> CpuMachine:
    """A machine at the owner's price."""
    return CpuMachine(usd_hour=exactly(usd_hour), source="as said")


def articles_machine(why: str) -> CpuMachine:
    """A machine at the articles' prices, because no offer is known."""
    return CpuMachine(usd_hour=ARTICLES_USD_HOUR, source=f"assumed, as in the articles; {why}")


def cheapest_machine(settings: Settings, *, poll: bool) -> CpuMachine:
    """The cheapest machine without GPUs now, by its hour; without one, the articles' prices.

    Args:
        poll: poll the providers instead of reading the store, which does not keep the number of processors.

    Raises:
        UsageError: no provider can be polled.
        StoreError: the store cannot be read.
    """
    wanted = offer_filter((NO_GPU,), kind="live")
    offers = current_offers(settings, wanted, poll_within_s=_POLL_WITHIN_S if poll else None)
    where = "no provider offers a machine without GPUs" if poll else "the store has no such machine of the last hours"
    if not offers.offers or is_old(offers.as_of, real_now()):
        return articles_machine(where)
    offer, price = min(offers.offers, key=lambda pair: (pair[1].price_microusd_hour, pair[0].provider))
    return CpuMachine(
        usd_hour=exactly(price.price_microusd_hour / MICRO),
        source=f"the cheapest machine without GPUs now, {offer.provider}",
        offers=len(offers.offers),
        processors=offer.vcpu,
    )
