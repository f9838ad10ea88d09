"""Microsoft Azure's retail price list: on demand and spot, per region, without an account. Prices only, no stock."""

from __future__ import annotations

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, OptionSpec, ProviderInfo, Tools

INFO = ProviderInfo(
    name="azure",
    title="Microsoft Azure",
    base_url="https://prices.azure.com",
    searches_without_key=True,
    runs_images=False,
    kinds=(OfferKind.LISTED,),
    spots=(False, True),
    options=(
        OptionSpec(
            name="regions", kind="texts", about='Regions to search, such as ["eastus", "westeurope"]; default: all.'
        ),
    ),
    poll_every_s=6 * 3600.0,
    search_interval_s=1.0,
    console_url="https://portal.azure.com",
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; the price list is public, and no key is ever sent to it."""
    from gpuwatch.providers.azure.market import AzureMarket  # noqa: PLC0415 - start-up reads the declaration alone

    return Adapter(name=INFO.name, info=INFO, market=AzureMarket(settings, tools))
