"""The market of TensorDock: one catalogue of all places serves every query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.settings import Option
from gpuwatch.providers.tensordock.error_mapping import accepted_value, ordering, reading
from gpuwatch.providers.tensordock.offers import ResourcesPerGpu, parse_hostnodes, parse_locations
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.post_processing import ParseResult


def new_client(settings: ProviderSettings, tools: Tools) -> ApiClient:
    """Build the HTTP client; reading each machine may use two thirds of the 100 requests a minute."""
    return ApiClient(settings, tools, intervals_s={"list": 1.0, "detail": 1.0}, reading=reading, ordering=ordering)


def resources_per_gpu(options: Mapping[str, Option]) -> ResourcesPerGpu:
    """Return the vCPUs and memory per GPU of the settings."""
    vcpu, ram = options.get("vcpu_per_gpu"), options.get("ram_gb_per_gpu")
    plain = ResourcesPerGpu()
    return ResourcesPerGpu(
        vcpu_per_gpu=vcpu if isinstance(vcpu, float | int) else plain.vcpu_per_gpu,
        ram_gb_per_gpu=ram if isinstance(ram, float | int) else plain.ram_gb_per_gpu,
    )


def build_fetch(options: Mapping[str, Option]) -> Callable[[ApiClient], tuple[ParseResult, datetime]]:
    """Return the function that fetches locations (without a key), or hosts if `source = "hostnodes"`."""
    per_gpu, hosts = resources_per_gpu(options), options.get("source") == "hostnodes"
    parse = parse_hostnodes if hosts else parse_locations

    def fetch(client: ApiClient) -> tuple[ParseResult, datetime]:
        if hosts:
            client.require_key()
        reply = client.request("GET", f"/api/v2/{'hostnodes' if hosts else 'locations'}")
        now = client.tools.now()
        return parse(accepted_value(reply, now), per_gpu, now), now

    return fetch
