"""Nebius AI Cloud: virtual machines in regions of its own, on demand and preemptible at a price that moves.

source: the vendor's Python SDK 0.6.29, whose messages carry the API's documentation; its pages about billing,
preemptible machines and capacity advice; gpuhunt 0.1.34, dstack's and SkyPilot's provisioners, read 2026-11.
No request has been sent.
"""

from __future__ import annotations

import re
from typing import Final

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, SelfDestruct, Tools
from gpuwatch.ports.prerequisites import declared
from gpuwatch.ports.settings import Option

_REGION_AND_ID: Final = re.compile(r"[a-z]{2}-[a-z]+\d+=[a-z]+-[0-9a-z]+")


def _check_ids_by_region(value: Option) -> None:
    invalid = [one for one in value if not _REGION_AND_ID.fullmatch(one)] if isinstance(value, tuple) else []
    if invalid:
        raise ValueError(f"expected region=id, such as eu-north1=project-e00abc, not {invalid[0][:40]!r}")


INFO = ProviderInfo(
    name="nebius",
    title="Nebius",
    base_url="https://api.nebius.cloud",
    key_names=("NEBIUS_IAM_TOKEN",),
    own_credentials="a service account's credentials file",
    launches=True,
    no_kept_disk="",
    no_kept_spot_disk="Nebius does not say whether a preemptible machine starts again",
    runs_images=False,
    spots=(False, True),
    billing=Billing(step_s=1.0),  # source: the vendor's pages about prices, 2026
    self_destruct=SelfDestruct(how="a timer on the machine shuts it down", leaves_disk=True),
    extra="nebius",
    options=(
        OptionSpec(
            name="credentials_file",
            kind="text",
            about="Service account credentials (JSON file); an IAM token as key expires after half a day.",
        ),
        OptionSpec(name="tenant", kind="text", about="Tenant to use if the credentials see several: tenant-…"),
        OptionSpec(
            name="projects",
            kind="texts",
            about="Projects to rent in, by region, eu-north1=project-…; default: the only one, or default-….",
            check=_check_ids_by_region,
        ),
        OptionSpec(
            name="subnets",
            kind="texts",
            about="Subnets by region, eu-north1=vpcsubnet-…; default: the only one, or default-subnet….",
            check=_check_ids_by_region,
        ),
        OptionSpec(name="ssh_key", kind="text", about="Public SSH key, ssh-ed25519 …; required for renting."),
        OptionSpec(name="image", kind="text", about="Image family of the system.", default="ubuntu24.04-cuda13.0"),
    ),
    label_length=63,  # source: dstack's backend, for names of resources
    default_disk_gb=100.0,
    poll_every_s=60.0,
    search_interval_s=2.0,  # no limit is published
    console_url="https://console.nebius.com",
    prerequisites=declared(
        "providers/nebius.md#before-the-first-rent",
        credentials="credentials that list instances in every project",
        region="one project in the region",
        network="one subnet in that project",
        quota="GPUs left in the quota of the region, platform and rental type",
        image="the image family in the region",
        key_pair="the public SSH key in options.ssh_key",
    ),
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; searching and renting share one connection, one rate limiter and one set of prices.

    The SDK is imported with the first request; if it is missing, every request names the extra to install.
    """
    from gpuwatch.providers.nebius.account import NebiusAccount, NebiusPrices  # noqa: PLC0415
    from gpuwatch.providers.nebius.client import NebiusClient  # noqa: PLC0415
    from gpuwatch.providers.nebius.launcher import NebiusLauncher  # noqa: PLC0415
    from gpuwatch.providers.nebius.market import NebiusMarket  # noqa: PLC0415

    client = NebiusClient(settings, tools, own_endpoints=settings.base_url.rstrip("/") == INFO.base_url)
    account = NebiusAccount(client, settings.options)
    prices = NebiusPrices(client)
    return Adapter(
        name=INFO.name,
        info=INFO,
        market=NebiusMarket(client, account, prices),
        launcher=NebiusLauncher(client, account, prices, settings.options),
    )
