"""A provider's current offers according to the history, for estimating the rows of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwatch.domain.market.offer import Verification
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.domain.market.search_query import SaleKey, SalePrice
from gpuwatch.storage.history.recording.history_state import load_open_prices
from gpuwatch.storage.market.open_prices import NEVER
from gpuwatch.storage.setup.database import Database


def prices_on_sale(database: Database, provider: str) -> Mapping[SaleKey, Sequence[SalePrice]]:
    """Return the offers of each completely read GPU and rental type.

    Raises:
        StoreError: the database cannot be read.
    """
    with database.read() as connection:
        prices = load_open_prices(connection)
    on_sale: dict[SaleKey, Sequence[SalePrice]] = {}
    for spot in (False, True):
        provider_prices = prices.prices_of(provider, int(spot))
        for gpu in {*provider_prices.covered_s, *provider_prices.models} - {""}:
            if provider_prices.newest_cover(gpu) != NEVER:
                on_sale[gpu, spot] = [
                    SalePrice(
                        count,
                        open_price.machine_microusd / MICRO,
                        (open_price.disk_microusd or 0) / MICRO,
                        None if open_price.verification is None else open_price.verification is Verification.VERIFIED,
                        machine_id=machine,
                    )
                    for (machine, count), open_price in provider_prices.models.get(gpu, {}).items()
                ]
    return on_sale
