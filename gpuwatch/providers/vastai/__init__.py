"""vast.ai: a marketplace of other people's machines, priced per second.

source: its public documents and official client, read 2026-11.
"""

from __future__ import annotations

from gpuwatch.domain.market.money import Commission, CommissionMode
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, ProviderInfo, SelfDestruct, Tools
from gpuwatch.ports.prerequisites import declared

INFO = ProviderInfo(
    name="vastai",
    title="vast.ai",
    row_name="offer",
    base_url="https://console.vast.ai",
    # The owner's decision. It is added to a listed price that seems to include the marketplace's own share already.
    commission=Commission("0.20", CommissionMode.ON_TOP),
    key_names=("VAST_API_KEY",),
    on_by_default=True,
    searches_without_key=True,
    launches=True,
    no_kept_disk="",
    self_destruct=SelfDestruct(how="it destroys itself with its own key, or stops if that fails"),
    sells_cpu_machines=True,
    takes_bids=True,
    spots=(False, True),
    rates_hosts=True,
    default_disk_gb=8.0,
    search_interval_s=6.0,
    rows_per_day=20_000,
    joins_gpus=True,
    console_url="https://cloud.vast.ai/create/",
    prerequisites=declared(
        "launching.md#before-the-first-rent",
        credentials="a key that lists instances",
        balance="credit for at least an hour",
    ),
    key_rights={
        "list": "instance_read",
        "rent": "instance_write",
        "credit": "user_read",
        "charges": "billing_read",
    },
    template="""\
[providers.vastai]                # searching needs no key, renting does: VAST_API_KEY
commission = 0.20                 # on top of the listed price: listed 3.00 costs 3.60
poll_every = "30s"                # poll interval of your watches; at least 1s
sweep_every = "auto"              # interval for reading the whole market into the history; or a duration
search_interval = "6s"            # minimum interval between two searches
rows_per_day = 20000              # the provider's daily row quota; 0: none
""",
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; searching and renting share one rate limiter."""
    from gpuwatch.providers.vastai.client import VastClient  # noqa: PLC0415 - start-up does not need the wire structs
    from gpuwatch.providers.vastai.launcher import VastLauncher  # noqa: PLC0415
    from gpuwatch.providers.vastai.market import VastMarket  # noqa: PLC0415

    client = VastClient(settings, tools)
    return Adapter(name=INFO.name, info=INFO, market=VastMarket(client), launcher=VastLauncher(client))
