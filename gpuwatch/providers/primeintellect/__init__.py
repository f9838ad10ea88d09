"""Prime Intellect: one list over two dozen clouds. What it sells is other sellers' stock; gpuwatch only watches it.

source: the vendor's OpenAPI 0.1.0 and documents, and its command line, read 2026-11.
"""

from __future__ import annotations

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, Tools, web_address

INFO = ProviderInfo(
    name="primeintellect",
    title="Prime Intellect",
    base_url="https://api.primeintellect.ai",
    key_names=("PRIME_API_KEY",),
    kinds=(OfferKind.LIVE, OfferKind.LISTED),
    spots=(False, True),
    billing=Billing(prepaid=True),
    poll_every_s=60.0,
    search_interval_s=1.0,  # between two pages; no limit is published
    console_url="https://app.primeintellect.ai",
    options=(
        OptionSpec(
            name="rate_url",
            kind="text",
            about="where the rates of exchange come from, for prices that are not in dollars",
            default="https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml",
            check=web_address,
        ),
    ),
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """The adapter; it has no renting side."""
    from gpuwatch.providers.primeintellect.market import KEPT_S, fetcher  # noqa: PLC0415 not for start-up
    from gpuwatch.providers.toolkit.api_client import ApiClient  # noqa: PLC0415
    from gpuwatch.providers.toolkit.catalogue import CatalogueMarket  # noqa: PLC0415

    market = CatalogueMarket(INFO, ApiClient(settings, tools), fetcher(settings, tools), KEPT_S)
    return Adapter(name=INFO.name, info=INFO, market=market)
