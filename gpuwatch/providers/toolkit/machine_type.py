"""A machine type of a cloud: a number of one GPU, at one price for the whole machine.

A type is sold in many regions, so one parsed type yields many offers, and describes the GPUs of an instance.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

import msgspec

from gpuwatch.domain.market.gpu_names import NO_GPU_NAME, GpuName, catalog
from gpuwatch.domain.market.offer import Offer, OfferTerms


class MachineType(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware of a machine type. Sizes are of the whole machine, except `gpu_memory_gib`."""

    gpu: GpuName
    gpu_wire: str  # as the provider spells it
    gpu_count: int
    gpu_memory_gib: float | None
    vcpu: float | None = None
    ram_gib: float | None = None
    disk_gb: float | None = None  # included in the price
    interconnect: str | None = None  # of the GPUs, if it is stated

    @classmethod
    def of(cls, gpu_wire: str, gpu_count: int, gpu_memory_gib: float | None, **others: Any) -> Self:
        """Return the type with the GPU that a spelling and the memory of one mean; `NO_GPU`, 0: it has none.

        Args:
            others: further fields; `gpu`, if more than these says which GPU it is.
        """
        gpu = catalog().resolve(gpu_wire, gpu_memory_gib) if gpu_count else NO_GPU_NAME
        fields = {"gpu": gpu} | others
        return cls(gpu_wire=gpu_wire, gpu_count=gpu_count, gpu_memory_gib=gpu_memory_gib, **fields)

    def terms(self, instance_type: str | None, **others: Any) -> OfferTerms:
        """Return the terms of a cloud's machines: any of a type is as good, one by one, at prices without tax.

        Args:
            others: further fields of `OfferTerms`, and other values of these.
        """
        fields: dict[str, Any] = {"fungible": True, "multi_node": False, "tax_included": False, "note": self.gpu.reason}
        return OfferTerms(instance_type=instance_type, interconnect=self.interconnect, **(fields | others))

    def offer(
        self,
        *,
        provider: str,
        offer_id: str,
        machine_id: str | None = None,
        usd_hour: float,
        terms: OfferTerms,
        observed_at: datetime,
        **others: Any,
    ) -> Offer:
        """Build an offer, on demand unless `others` (further fields of `Offer`) says otherwise.

        Args:
            machine_id: None: the offer's id, because no other offer is of that machine.
        """
        fields: dict[str, Any] = {
            "spot": False,
            "quoted_disk_gb": self.disk_gb or 0.0,
            "disk_usd_gb_month": None,
            "disk_free_gb": self.disk_gb or None,
            "datacenter": True,
        }
        return Offer(
            provider=provider,
            offer_id=offer_id,
            machine_id=offer_id if machine_id is None else machine_id,
            gpu=self.gpu.name,
            gpu_family=self.gpu.family,
            gpu_wire=self.gpu_wire,
            gpu_known=self.gpu.known,
            gpu_count=self.gpu_count,
            gpu_memory_gib=self.gpu_memory_gib,
            quoted_usd_hour=usd_hour,
            observed_at=observed_at,
            vcpu=self.vcpu,
            ram_gib=self.ram_gib,
            terms=terms,
            **(fields | others),
        )


def fields_of_instance(found: MachineType | None) -> dict[str, Any]:
    """Return the GPUs and the disk as fields of `Instance`; empty for a type that cannot be read."""
    if found is None:
        return {}
    return {
        "gpu": found.gpu.name,
        "gpu_wire": found.gpu_wire,
        "gpu_count": found.gpu_count,
        "gpu_memory_gib": found.gpu_memory_gib,
        "disk_gb": found.disk_gb,
    }
