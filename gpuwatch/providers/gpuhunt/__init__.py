"""gpuhunt's published price catalogs of clouds without a gpuwatch adapter, for alerts and comparison. Never stock.

gpuwatch fetches the catalogs, with its own deadlines and size limits, and the library gpuhunt reads them from a folder:
the library's own download has no timeout, and its threads would keep a stopping process alive.

source: the code of gpuhunt 0.1.34 (MPL-2.0), read 2026-11.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, OptionSpec, ProviderInfo, Tools

# gpuhunt's names of the clouds with published catalogs → gpuwatch's.
SELLERS: Final = {
    "aws": "aws",
    "azure": "azure",
    "cloudrift": "cloudrift",
    "gcp": "gcp",
    "lambdalabs": "lambda",
    "nebius": "nebius",
    "oci": "oracle",
    "runpod": "runpod",
    "verda": "verda",
}
# Clouds that the library queries itself, except Crusoe, whose prices are constants in its code, and vast.ai.
ONLINE: Final = ("daytona", "digitalocean", "hotaisle", "jarvislabs", "lium", "seeweb", "vultr")
INFO = ProviderInfo(
    name="gpuhunt",
    title="gpuhunt",
    base_url="https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3",
    searches_without_key=True,
    runs_images=False,
    kinds=(OfferKind.LISTED, OfferKind.HISTORY),
    spots=(False, True),
    extra="gpuhunt",
    options=(
        OptionSpec(
            name="sellers",
            kind="texts",
            default=("cloudrift", "nebius", "oci", "verda"),
            choices=tuple(SELLERS),
            about="Clouds to read catalogs of; default: those without a gpuwatch adapter.",
        ),
        OptionSpec(
            name="online",
            kind="texts",
            default=(),
            choices=ONLINE,
            about="Clouds that the library queries itself, with its own keys from the environment; default: none.",
        ),
    ),
    poll_every_s=1800.0,
    search_interval_s=0.0,
    console_url="https://github.com/dstackai/gpuhunt",
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter. The library is imported with the first catalog; if it is missing, every request says so."""
    from gpuwatch.providers.gpuhunt.market import GpuhuntMarket  # noqa: PLC0415 - start-up does not need archives

    return Adapter(name=INFO.name, info=INFO, market=GpuhuntMarket(settings, tools))
