"""Nebius's prices: on demand and disks from its calculator, preemptible machines from its spot market."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuwatch.errors import PayloadChanged
from gpuwatch.providers.nebius.client import ESTIMATE, LIST_SPOT_PRICES, PROVIDER, NebiusClient, api
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.catalogue import TTL_S
from gpuwatch.providers.toolkit.validation import number, usd_hour

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
