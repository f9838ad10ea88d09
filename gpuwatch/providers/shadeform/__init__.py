"""Shadeform: one API over many clouds. It sells the stock of other sellers, at their prices.

source: the vendor's OpenAPI 1.0.0 and guides, and public clients, read 2026-11.
"""

from __future__ import annotations

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, SelfDestruct, Tools
from gpuwatch.ports.prerequisites import declared

INFO = ProviderInfo(
    name="shadeform",
    title="Shadeform",
    base_url="https://api.shadeform.ai/v1",
    key_names=("SHADEFORM_API_KEY",),
    searches_without_key=True,
    launches=True,
    self_destruct=SelfDestruct(how="Shadeform deletes it at its own deadline"),
    runs_images=False,
    kinds=(OfferKind.LIVE, OfferKind.LISTED),
    spots=(False, True),
    image_runtype="args",
    billing=Billing(prepaid=True),
    options=(
        OptionSpec(name="ssh_key", kind="text", about="Id of an SSH key at Shadeform; default: the account's key."),
        OptionSpec(name="os", kind="text", about="Operating system, spelled as in the type's `os_options`."),
        OptionSpec(
            name="shade_cloud",
            kind="switch",
            default=True,
            about="false: rent in your own account at the cloud, if it is linked to Shadeform.",
        ),
        OptionSpec(
            name="longest_hours",
            kind="number",
            default=24.0,
            least=0.1,
            about="Hours after which Shadeform deletes an instance without a deadline.",
        ),
    ),
    console_url="https://platform.shadeform.ai",
    prerequisites=declared(
        "launching.md#before-the-first-rent",
        credentials="a key that lists instances",
    ),
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; searching and renting share one rate limiter."""
    from gpuwatch.providers.shadeform.launcher import ShadeformClient, ShadeformLauncher  # noqa: PLC0415
    from gpuwatch.providers.shadeform.offers import fetch_types  # noqa: PLC0415 - not for start-up
    from gpuwatch.providers.toolkit.catalogue import CatalogueMarket  # noqa: PLC0415

    account = ShadeformClient(settings, tools)
    return Adapter(
        name=INFO.name,
        info=INFO,
        market=CatalogueMarket(INFO, account, fetch_types),
        launcher=ShadeformLauncher(account, settings.options),
    )
