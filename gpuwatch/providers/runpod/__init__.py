"""RunPod: pods with GPUs in its data centres (secure cloud) and at hosts (community cloud), priced per second.

source: its REST v2 specification, its GraphQL guide, recorded answers; read 2026-11.
"""

from __future__ import annotations

import re

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, SelfDestruct, Tools
from gpuwatch.ports.prerequisites import declared
from gpuwatch.ports.settings import Option


def _version(value: Option) -> None:
    if not re.fullmatch(r"\d{1,2}\.\d{1,2}", str(value)):
        raise ValueError('expected a version such as "12.4"')


INFO = ProviderInfo(
    name="runpod",
    title="RunPod",
    base_url="https://api.runpod.io",
    key_names=("RUNPOD_API_KEY",),
    searches_without_key=True,
    launches=True,
    no_kept_disk="",
    keeps_volumes_only="a stop wipes the container disk; a pod with launch.volume keeps the volume",
    self_destruct=SelfDestruct(
        how="the pod deletes itself with the key that RunPod puts into it (reported, not tested)", needs_onstart=True
    ),
    billing=Billing(prepaid=True),
    options=(
        OptionSpec(
            name="clouds",
            kind="texts",
            about="Which of its two clouds to search; each costs one request per GPU count.",
            default=("SECURE", "COMMUNITY"),
            choices=("SECURE", "COMMUNITY"),
        ),
        OptionSpec(
            name="registry_id",
            kind="text",
            about="Id of registry credentials stored at RunPod; sent with every pod.",
        ),
        OptionSpec(
            name="min_cuda", kind="text", about="Minimum CUDA version of the host, such as 12.4.", check=_version
        ),
        OptionSpec(name="min_ram_gb_per_gpu", kind="integer", about="Minimum memory of the host per GPU.", least=1),
        OptionSpec(name="min_vcpus_per_gpu", kind="integer", about="Minimum vCPUs of the host per GPU.", least=1),
    ),
    default_disk_gb=10.0,  # container disk in GB, as its official client orders
    search_interval_s=0.1,  # the quota in the headers limits the rate
    rows_per_day=0,
    console_url="https://console.runpod.io/deploy",
    prerequisites=declared(
        "providers/runpod.md#before-the-first-rent",
        credentials="a key that lists pods",
        balance="credit for at least an hour",
        key_pair="an SSH key in the account, where runtype opens SSH",
        image="stored registry credentials, if an image needs them",
    ),
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; searching and renting share the key, the rate limit and the quota."""
    from gpuwatch.providers.runpod.client import RunpodClient  # noqa: PLC0415 - not for start-up
    from gpuwatch.providers.runpod.launcher import RunpodLauncher  # noqa: PLC0415
    from gpuwatch.providers.runpod.market import RunpodMarket  # noqa: PLC0415

    account = RunpodClient(settings, tools)
    market = RunpodMarket(account, settings, INFO.default_disk_gb)
    return Adapter(name=INFO.name, info=INFO, market=market, launcher=RunpodLauncher(account, settings))
