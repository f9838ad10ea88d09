"""The current price of a GPU, to value what `gpuwatch dataset` saves."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from gpuwatch.app.dataset.saving import TrainingPrice
from gpuwatch.app.offers import markets_now, providers_that_sell
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.engine.browse import offer_filter
from gpuwatch.storage.price_sources import is_imported_source, kind_of_source, provider_of_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.settings import Settings

_POLL_WITHIN_S = 30.0


def stored_price(settings: Settings, gpus: Sequence[str], now: datetime) -> TrainingPrice | None:
    """The cheapest live offer in the store, per GPU-hour, commission included.

    Returns:
        None: no poll in the last three hours, or no offer.

    Raises:
        StoreError: the store cannot be read.
    """
    from gpuwatch.storage.market_snapshot import market_at

    rates = {name: float(one.commission.on_top_rate(None)) for name, one in settings.providers.items()}
    found: list[tuple[float, str, str]] = []
    with open_store_read_only(settings) as database:
        for gpu in gpus:
            snapshot = market_at(database, now, gpu)
            for one in snapshot.offers if snapshot.known else ():
                who = one.identity
                if who.spot or is_imported_source(who.provider) or kind_of_source(who.provider) is not OfferKind.LIVE:
                    continue
                rate = rates.get(provider_of_source(who.provider), 0.0)
                found.append((one.listed_microusd_hour() * (1 + rate) / who.gpu_count, who.gpu, who.provider))
    if not found:
        return None
    price, gpu, provider = min(found)
    return TrainingPrice(usd_gpu_hour=price / 1e6, source=f"the cheapest {gpu} now, {provider}", gpu=gpu)


def polled_price(settings: Settings, gpu: str) -> TrainingPrice | None:
    """The same, by polling the providers. None: they have no offer.

    Raises:
        UsageError: no GPU has this name, or no provider can be polled.
    """

    wanted = offer_filter((gpu,), kind="live")
    names = providers_that_sell(settings, wanted, ())
    found = [match for one in markets_now(settings, wanted, names, 1, _POLL_WITHIN_S) for match in one.matches]
    if not found:
        return None
    best = min(found, key=lambda match: match.price_microusd_gpu_hour)
    return TrainingPrice(
        usd_gpu_hour=float(best.price_microusd_gpu_hour) / 1e6,
        source=f"the cheapest {best.offer.gpu} now, {best.offer.provider}",
        gpu=best.offer.gpu,
    )
