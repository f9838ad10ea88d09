"""Google Cloud's list prices of machines with GPUs: on demand and spot, per region. A price, never stock.

With an API key they are assembled from Google's own price list; without one they are read from a public project's
weekly computation of the same list.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, OptionSpec, ProviderInfo, Tools, web_address

INFO: Final = ProviderInfo(
    name="gcp",
    title="Google Cloud",
    base_url="https://cloudbilling.googleapis.com",
    key_names=("GCP_API_KEY",),
    searches_without_key=True,
    runs_images=False,
    kinds=(OfferKind.LISTED, OfferKind.HISTORY),
    spots=(False, True),
    options=(
        OptionSpec(
            name="pricing_url",
            kind="text",
            about="Address of the weekly pricing.yml, read without a key; default: GitHub's, or an own base_url's.",
            check=web_address,
        ),
    ),
    poll_every_s=12 * 3600.0,
    search_interval_s=0.0,
    console_url="https://console.cloud.google.com/compute",
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """The adapter; what it is made of is imported only now."""
    from gpuwatch.providers.gcp.market import GoogleMarket  # noqa: PLC0415 not before it is used

    return Adapter(name=INFO.name, info=INFO, market=GoogleMarket(settings, tools, INFO))
