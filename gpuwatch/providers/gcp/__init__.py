"""Google Cloud's list prices of machines with GPUs: on demand and spot, per region. Prices only, no stock."""

from __future__ import annotations

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, OptionSpec, ProviderInfo, Tools, web_address

INFO = ProviderInfo(
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
            about="URL of the weekly pricing.yml, read without a key; default: GitHub, or a custom base_url.",
            check=web_address,
        ),
    ),
    poll_every_s=12 * 3600.0,
    search_interval_s=0.0,
    console_url="https://console.cloud.google.com/compute",
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter."""
    from gpuwatch.providers.gcp.market import GoogleMarket  # noqa: PLC0415 - start-up reads the declaration alone

    return Adapter(name=INFO.name, info=INFO, market=GoogleMarket(settings, tools))
