"""Verda, formerly DataCrunch: virtual machines in a few places of its own, on demand and as spot.

source: the vendor's Python client 1.25.0 and its tests, its OpenAPI as published in public, gpuhunt 0.1.34, dstack's
backend and an issue of the vendor's command line, read 2026-11. No request has been sent.
"""

from __future__ import annotations

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, Tools
from gpuwatch.ports.prerequisites import declared

INFO = ProviderInfo(
    name="verda",
    title="Verda",
    base_url="https://api.verda.com/v1",
    key_names=("VERDA_CLIENT_SECRET", "DATACRUNCH_CLIENT_SECRET"),
    launches=True,
    runs_images=False,
    spots=(False, True),
    billing=Billing(prepaid=True),
    options=(
        OptionSpec(
            name="client_id", kind="text", about="Id of the API credentials (required); the key is their secret."
        ),
        OptionSpec(name="ssh_key", kind="text", about="Id of an SSH key registered at Verda; required for renting."),
        OptionSpec(name="image", kind="text", about="System image, by name or id; default: Ubuntu with CUDA."),
    ),
    default_disk_gb=50.0,
    search_interval_s=1.0,  # no limit is published
    console_url="https://console.verda.com",
    prerequisites=declared(
        "launching.md#before-the-first-rent",
        credentials="a key that lists instances",
        balance="money on the account",
        key_pair="the SSH key of options.ssh_key",
    ),
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; searching and renting share one login and one rate limiter."""
    from gpuwatch.providers.toolkit.catalogue import CatalogueMarket  # noqa: PLC0415 - not for start-up
    from gpuwatch.providers.verda.client import VerdaClient  # noqa: PLC0415
    from gpuwatch.providers.verda.launcher import VerdaLauncher  # noqa: PLC0415
    from gpuwatch.providers.verda.offers import OfferReader  # noqa: PLC0415

    account = VerdaClient(settings, tools)
    return Adapter(
        name=INFO.name,
        info=INFO,
        market=CatalogueMarket(INFO, account, OfferReader(tools.monotonic).fetch),
        launcher=VerdaLauncher(account, settings.options),
    )
