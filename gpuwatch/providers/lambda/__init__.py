"""Lambda: a cloud of virtual machines. A type has one price everywhere; only the regions with capacity change.

The folder's name is a Python keyword: only `importlib` can import it, and imports inside it are relative.

source: the vendor's OpenAPI 1.10.0 and billing page, and public clients, read 2026-11.
"""

from __future__ import annotations

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, Tools
from gpuwatch.ports.prerequisites import declared

INFO = ProviderInfo(
    name="lambda",
    title="Lambda",
    base_url="https://cloud.lambda.ai/api/v1",
    key_names=("LAMBDA_API_KEY",),
    launches=True,
    runs_images=False,
    billing=Billing(step_s=60.0),
    options=(
        OptionSpec(name="ssh_key", kind="text", about="Name of an SSH key registered at Lambda; required for renting."),
        OptionSpec(name="image", kind="text", about="System image, by family or id; default: the newest Lambda Stack."),
    ),
    search_interval_s=1.0,
    console_url="https://cloud.lambda.ai/instances",
    prerequisites=declared(
        "launching.md#before-the-first-rent",
        credentials="a key that lists instances",
        key_pair="the SSH key of options.ssh_key",
    ),
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; searching and renting share one rate limiter."""
    from gpuwatch.providers.toolkit.catalogue import CatalogueMarket  # noqa: PLC0415 - not for start-up

    from .launcher import LambdaClient, LambdaLauncher  # noqa: PLC0415
    from .offers import fetch_types  # noqa: PLC0415

    account = LambdaClient(settings, tools)
    return Adapter(
        name=INFO.name,
        info=INFO,
        market=CatalogueMarket(INFO, account, fetch_types),
        launcher=LambdaLauncher(account, settings.options),
    )
