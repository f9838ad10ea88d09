"""The account: its tenant, its project in each region, the subnet of a project, and its prices.

Prices on demand and of disks are from Nebius's calculator, those of preemptible machines from its spot market.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuwatch.errors import KeyRejected, PayloadChanged
from gpuwatch.ports.settings import Option
from gpuwatch.providers.nebius.client import (
    ESTIMATE,
    LIST_PROJECTS,
    LIST_SPOT_PRICES,
    LIST_SUBNETS,
    LIST_TENANTS,
    PROVIDER,
    NebiusClient,
    api,
)
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.catalogue import TTL_S
from gpuwatch.providers.toolkit.validation import number, usd_hour

_TTL_S: Final = 600.0  # a new project or subnet is found after this time
_ID: Final = re.compile(r"[a-z][a-z0-9-]{1,80}")
_REGION: Final = re.compile(r"[a-z0-9-]{1,30}")


class NebiusAccount:
    """What the credentials see. Creates nothing."""

    def __init__(self, client: NebiusClient, options: Mapping[str, Option]) -> None:
        self._client = client
        self._tenant = options.get("tenant")
        self._projects, self._subnets = _by_region(options.get("projects")), _by_region(options.get("subnets"))
        self._cache: TtlCache[object] = TtlCache(_TTL_S, client.tools.monotonic)

    def tenant(self) -> str:
        """Return the tenant's id. Raises ProviderError; KeyRejected: there is none, or the settings must name one."""
        if isinstance(self._tenant, str):
            return self._tenant
        found = self._cache.get(lambda: [_id(page.metadata.id) for page in self._client.pages(LIST_TENANTS)], "tenants")
        assert isinstance(found, list)
        if len(found) != 1:
            raise KeyRejected(
                f"{PROVIDER}: the credentials see {len(found)} tenants; name one in options.tenant of "
                f"[providers.{PROVIDER}.options]"
            )
        return str(found[0])

    def projects(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return region → (id, name) of every project there. Raises ProviderError."""

        def fetch() -> object:
            found: dict[str, list[tuple[str, str]]] = {}
            for page in self._client.pages(LIST_PROJECTS, parent_id=self.tenant()):
                if _REGION.fullmatch(page.spec.region):
                    found.setdefault(page.spec.region, []).append((_id(page.metadata.id), str(page.metadata.name)))
            return found

        cached = self._cache.get(fetch, "projects")
        assert isinstance(cached, dict)
        return cached

    def project(self, region: str) -> str | None:
        """Return the project to rent in: from the settings, the only one, or the default one. Raises ProviderError."""
        return self._projects.get(region) or _single_or_default(self.projects().get(region, ()), "default-")

    def subnet(self, region: str, project: str) -> str | None:
        """Return the subnet of a project, found in the same way. Raises ProviderError."""
        if region in self._subnets:
            return self._subnets[region]

        def fetch() -> object:
            return [
                (_id(page.metadata.id), str(page.metadata.name))
                for page in self._client.pages(LIST_SUBNETS, parent_id=project)
            ]

        cached = self._cache.get(fetch, project)
        assert isinstance(cached, list)
        return _single_or_default(cached, "default-subnet")


def _single_or_default(candidates: Sequence[tuple[str, str]], default: str) -> str | None:
    default_ids = [one for one, name in candidates if name.startswith(default)]
    ids = [one for one, _ in candidates]
    return ids[0] if len(ids) == 1 else default_ids[0] if len(default_ids) == 1 else None


def _by_region(value: Option) -> dict[str, str]:
    return dict(one.split("=", 1) for one in value) if isinstance(value, tuple) else {}


def _id(value: object) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise PayloadChanged(f"{PROVIDER}: an id has an unexpected format")
    return value


_LIST_PRICE_TTL_S: Final = 3600.0  # list prices; preemptible prices are requested each time
_HOURS: Final = 720.0  # per month, as in `Offer.disk_usd_gb_month`
_DISK_GIB: Final = 1024


class NebiusPrices:
    """Prices in US dollars an hour, as listed: discounts of the account's contract are unknown here."""

    def __init__(self, client: NebiusClient) -> None:
        self._client = client
        self._list_prices: TtlCache[float | None] = TtlCache(_LIST_PRICE_TTL_S, client.tools.monotonic)
        self._spot_prices: TtlCache[dict[tuple[str, str], float]] = TtlCache(TTL_S, client.tools.monotonic)

    def on_demand(self, project: str, platform: str, preset: str) -> float | None:
        """Return the price of a machine without its disk; None: not in the calculator. Raises ProviderError."""

        def fetch() -> float | None:
            compute = api("compute.v1")
            spec = compute.InstanceSpec(resources=compute.ResourcesSpec(platform=platform, preset=preset))
            request = compute.CreateInstanceRequest(metadata=_metadata_in(project), spec=spec)
            return usd_hour(self._estimate(compute_instance_spec=request))

        return self._list_prices.get(fetch, (project, platform, preset))

    def disk_usd_gb_month(self, project: str) -> float | None:
        """Return the price of a GB of system disk for 720 hours; None: not in the calculator. Raises ProviderError."""

        def fetch() -> float | None:
            compute = api("compute.v1")
            spec = compute.DiskSpec(size_gibibytes=_DISK_GIB, type=compute.DiskSpec.DiskType.NETWORK_SSD)
            hourly = number(
                self._estimate(compute_disk_spec=compute.CreateDiskRequest(metadata=_metadata_in(project), spec=spec))
            )
            return None if hourly is None or not 0 <= hourly < _DISK_GIB else hourly * _HOURS / _DISK_GIB

        return self._list_prices.get(fetch, project)

    def spot(self) -> Mapping[tuple[str, str], float]:
        """Return (region, platform) → the current price of one preemptible GPU. Raises ProviderError."""

        def fetch() -> dict[tuple[str, str], float]:
            rows, found = self._client.pages(LIST_SPOT_PRICES), dict[tuple[str, str], float]()
            for row in rows:
                price = usd_hour(row.price.value)
                per_gpu = row.price.unit_title.casefold() in {"", "gpu hour"}
                if price is not None and per_gpu and row.price.currency.casefold() == "usd":
                    found[row.region, row.compute_instance.platform] = price
            if not found:
                raise PayloadChanged(f"{PROVIDER}: none of {len(rows)} spot prices can be used")
            return found

        return self._spot_prices.get(fetch)

    def _estimate(self, **spec: Any) -> object:
        """Return the calculator's hourly price. Raises ProviderError."""
        try:
            answer = self._client.call(ESTIMATE, resource_spec=api("billing.v1alpha1").ResourceSpec(**spec))
        except PayloadChanged:  # it refuses what is not sold in that region
            return None
        general = answer.hourly_cost.general
        if general is None:
            raise PayloadChanged(f"{PROVIDER}: the estimate has no hourly cost")
        return general.total.cost


def _metadata_in(project: str) -> Any:
    return api("common.v1").ResourceMetadata(parent_id=project)
