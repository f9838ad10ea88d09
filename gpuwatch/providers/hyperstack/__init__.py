"""Hyperstack (NexGen Cloud): virtual machines in regions of its own, on demand, at a price per GPU.

source: the vendor's Python SDK of 2026-04 and its pages about billing and states, SkyPilot's provisioner and catalogue,
and public programs that quote its answers, read 2026-11. No request has been sent.
"""

from __future__ import annotations

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, Tools
from gpuwatch.ports.prerequisites import declared

INFO = ProviderInfo(
    name="hyperstack",
    title="Hyperstack",
    base_url="https://infrahub-api.nexgencloud.com/v1",
    key_names=("HYPERSTACK_API_KEY",),
    launches=True,
    runs_images=False,
    billing=Billing(step_s=60.0, prepaid=True),  # source: the vendor's pages about prices and billing, 2026-08
    options=(
        OptionSpec(name="ssh_key", kind="text", about="Name of a key pair at Hyperstack; required for renting."),
        OptionSpec(
            name="environment",
            kind="text",
            about="Environment to rent in; {region} is replaced.",
            default="default-{region}",
        ),
        OptionSpec(
            name="image",
            kind="text",
            about="System image, by name.",
            default="Ubuntu Server 22.04 LTS R535 CUDA 12.2",
        ),
    ),
    label_length=50,  # source: the vendor's page about creating a machine
    search_interval_s=1.0,  # the vendor allows 500 requests a minute
    console_url="https://console.hyperstack.cloud",
    prerequisites=declared(
        "providers/hyperstack.md#before-the-first-rent",
        credentials="a key that lists virtual machines",
        balance="credit on the account",
        key_pair="the key pair of options.ssh_key, in the environment of the region",
    ),
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; searching and renting share one rate limiter."""
    from gpuwatch.providers.hyperstack.client import HyperstackClient  # noqa: PLC0415 - not for start-up
    from gpuwatch.providers.hyperstack.launcher import HyperstackLauncher  # noqa: PLC0415
    from gpuwatch.providers.hyperstack.offers import fetch_flavors  # noqa: PLC0415
    from gpuwatch.providers.toolkit.catalogue import CatalogueMarket  # noqa: PLC0415

    account = HyperstackClient(settings, tools)
    return Adapter(
        name=INFO.name,
        info=INFO,
        market=CatalogueMarket(INFO, account, fetch_flavors),
        launcher=HyperstackLauncher(account, settings.options),
    )
