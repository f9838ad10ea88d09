"""TensorDock: virtual machines on hosts of several owners, priced as a sum of their parts.

source: the vendor's v2 documents and findings of public clients of 2025 and 2026, read 2026-11. Listed machines are
often unavailable.
"""

from __future__ import annotations

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, SelfDestruct, Tools
from gpuwatch.ports.prerequisites import declared

INFO = ProviderInfo(
    name="tensordock",
    title="TensorDock",
    base_url="https://dashboard.tensordock.com",
    key_names=("TENSORDOCK_API_TOKEN",),
    searches_without_key=True,
    launches=True,
    no_kept_disk="nothing shows what a stopped machine costs, and its GPU may be gone",
    self_destruct=SelfDestruct(how="a timer on the machine shuts it down", leaves_disk=True, may_leave_all=True),
    runs_images=False,
    billing=Billing(prepaid=True),
    default_disk_gb=100.0,
    search_interval_s=3.0,  # 100 requests a minute for all requests of an organisation
    console_url="https://dashboard.tensordock.com",
    prerequisites=declared(
        "launching.md#before-the-first-rent",
        credentials="a token that lists instances",
        key_pair="the public SSH key in options.ssh_key",
    ),
    options=(
        OptionSpec(
            name="source",
            kind="text",
            default="locations",
            choices=("locations", "hostnodes"),
            about="What to list and rent: a location, where the platform picks the host, or a host (requires the key).",
        ),
        OptionSpec(
            name="vcpu_per_gpu",
            kind="number",
            default=8.0,
            least=1,
            about="vCPUs to order per GPU; fewer if the location has fewer.",
        ),
        OptionSpec(
            name="ram_gb_per_gpu",
            kind="number",
            default=32.0,
            least=1,
            about="Memory to order per GPU in GB; less if the location has less.",
        ),
        OptionSpec(
            name="image",
            kind="text",
            default="ubuntu2404_ml_pytorch",
            about="Operating system of the machine; plain ubuntu2404 came without the NVIDIA driver.",
        ),
        OptionSpec(
            name="ssh_key",
            kind="text",
            about='Public SSH key, as in id_ed25519.pub: "ssh-ed25519 AAAA…"; required for renting.',
        ),
    ),
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; searching and renting share one rate limiter."""
    from gpuwatch.providers.tensordock.error_mapping import ordering, reading  # noqa: PLC0415
    from gpuwatch.providers.tensordock.launcher import TensorDockLauncher  # noqa: PLC0415
    from gpuwatch.providers.tensordock.offers import build_fetch  # noqa: PLC0415
    from gpuwatch.providers.toolkit.api_client import ApiClient  # noqa: PLC0415 - not for start-up
    from gpuwatch.providers.toolkit.catalogue import CatalogueMarket  # noqa: PLC0415

    # reading each machine may use two thirds of the 100 requests a minute
    client = ApiClient(settings, tools, intervals_s={"list": 1.0, "detail": 1.0}, reading=reading, ordering=ordering)
    return Adapter(
        name=INFO.name,
        info=INFO,
        market=CatalogueMarket(INFO, client, build_fetch(settings.options)),
        launcher=TensorDockLauncher(client, settings.options),
    )
