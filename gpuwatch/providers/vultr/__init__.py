"""Vultr: virtual machines with whole GPUs (Cloud GPU) or without any, on demand, at one price per plan and place.

source: the vendor's Go client 3.32.0 and its tests, its generated Python client, its page about billing, its Terraform
provider, dstack's backend, gpuhunt, and answers that users quote in public repositories, read 2026-11. No request has
been sent.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Adapter, Billing, OptionSpec, ProviderInfo, Tools
from gpuwatch.ports.prerequisites import declared

PROVIDER: Final = "vultr"
INFO = ProviderInfo(
    name=PROVIDER,
    title="Vultr",
    base_url="https://api.vultr.com/v2",
    key_names=("VULTR_API_KEY",),
    launches=True,
    sells_cpu_machines=True,
    no_kept_disk="a stopped machine costs its full price",
    runs_images=False,
    billing=Billing(minimum_s=3600.0, step_s=3600.0),  # source: "How am I billed for my servers", 2025-09-15
    options=(
        OptionSpec(name="ssh_key", kind="text", about="Id of an SSH key registered at Vultr; required for renting."),
        OptionSpec(name="image", kind="id", about="System image: id of an operating system; default: Ubuntu 22.04."),
    ),
    label_length=64,  # the maximum of dstack's backend. assumed: the vendor states none
    poll_every_s=60.0,  # a poll queries every place that sells what is wanted
    search_interval_s=1.0,
    console_url="https://my.vultr.com",
    prerequisites=declared(
        "providers/vultr.md#before-the-first-rent",
        credentials="a key that lists instances, used from an allowed address",
        key_pair="the SSH key of options.ssh_key",
    ),
)


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter; searching and renting share one rate limiter."""
    from gpuwatch.providers.vultr.cloud import VultrCloud  # noqa: PLC0415 - not for start-up

    return VultrCloud.build(settings, tools)
