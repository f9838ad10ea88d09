"""Prime Intellect: one list over two dozen clouds. It sells the stock of other sellers, at their prices.

source: the vendor's OpenAPI 0.1.0 and documents, its command line, and SkyPilot 0.14.1, read 2026-11.
"""

from __future__ import annotations

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, Tools, web_address
from gpuwatch.ports.prerequisites import declared

INFO = ProviderInfo(
    name="primeintellect",
    title="Prime Intellect",
    base_url="https://api.primeintellect.ai",
    key_names=("PRIME_API_KEY",),
    kinds=(OfferKind.LIVE, OfferKind.LISTED),
    spots=(False, True),
    launches=True,
    runs_images=False,
    runs_onstart=False,
    billing=Billing(prepaid=True),
    poll_every_s=60.0,
    search_interval_s=1.0,  # between two pages; no limit is published
    console_url="https://app.primeintellect.ai",
    options=(
        OptionSpec(
            name="rate_url",
            kind="text",
            about="Source of the exchange rates, for prices that are not in dollars.",
            default="https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml",
            check=web_address,
        ),
        OptionSpec(name="ssh_key", kind="text", about="Id of an SSH key at Prime Intellect; default: the account's."),
        OptionSpec(
            name="image",
            kind="text",
            default="ubuntu_22_cuda_12",
            about="System image, spelled as in the offers' `images`.",
        ),
    ),
    prerequisites=declared(
        "launching.md#before-the-first-rent",
        credentials="a key that lists instances",
    ),
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; the launcher rents the offers of the last search."""
    from gpuwatch.providers.primeintellect.launcher import (  # noqa: PLC0415 not for start-up
        PrimeLauncher,
        create_error,
        list_error,
    )
    from gpuwatch.providers.primeintellect.market import ListedRows, build_fetch  # noqa: PLC0415
    from gpuwatch.providers.toolkit.api_client import ApiClient  # noqa: PLC0415
    from gpuwatch.providers.toolkit.catalogue import CatalogueMarket  # noqa: PLC0415

    listed_rows: ListedRows = {}
    fetch = build_fetch(settings, tools, listed_rows)
    account = ApiClient(settings, tools, reading=list_error, ordering=create_error)

    def fetch_rows() -> ListedRows:
        fetch(account)
        return listed_rows

    launcher = PrimeLauncher(account, settings.options, lambda: listed_rows, fetch_rows)
    return Adapter(name=INFO.name, info=INFO, market=CatalogueMarket(INFO, account, fetch), launcher=launcher)
