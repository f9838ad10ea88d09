"""Machines, the slices in which they are sold, the listings with an offer id, and the fields that depend on a price."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from gpuwatch.emulator.market.hardware import BOARDS, CPUS, DRIVERS, NO_GPU, PLACES, GpuModel

DAY_S = 86_400.0
HOURS_A_MONTH = 720  # `storage_cost` is USD per GB and month of 720 hours
DEFAULT_STORAGE_GB = 8.0  # the disk in the price if the query names none
GpuHolder = int | str  # an instance of the renter, or the name of somebody else


class PriceView(NamedTuple):
    """How a search sees an offer: rented or bid for, and with which disk."""

    bid: bool
    storage_gb: float


@dataclass(slots=True)
class Slice:
    """Some GPUs of a machine, sold together; `row` is its offer without id, prices and duration."""

    gpus: tuple[int, ...]
    row: dict[str, Any]
    base_usd_hour: float
    min_bid_usd_hour: float
    offer_id: int = 0


@dataclass(slots=True)
class EmulatedMachine:
    """One host machine; `holders`: who uses each GPU."""

    id: int
    host_id: int
    gpu: GpuModel
    gpu_ids: tuple[int, ...]
    fields: dict[str, Any]
    usd_gpu_hour: float
    bid_usd_gpu_hour: float
    slices: list[Slice] = field(default_factory=list)
    holders: dict[int, GpuHolder] = field(default_factory=dict)
    pinned: bool = False
    defect: str | None = None
    stale_slices: bool = False

    def is_free(self, gpus: tuple[int, ...]) -> bool:
        """Whether all these GPUs are free."""
        return not any(gpu in self.holders for gpu in gpus)

    def make_slice(self, gpus: tuple[int, ...]) -> Slice:
        """Make a slice of these GPUs at the machine's price per GPU."""
        count = len(gpus)
        row = self.fields | slice_fields(self.fields, self.gpu, count, len(self.gpu_ids))
        row |= {"gpu_ids": list(gpus), "num_gpus": count, "min_bid": self.bid_usd_gpu_hour * count}
        row |= {"machine_id": self.id, "host_id": self.host_id, "avail_vol_dph": row["storage_cost"] / HOURS_A_MONTH}
        new_slice = Slice(gpus, row, self.usd_gpu_hour * count, self.bid_usd_gpu_hour * count)
        if self.gpu is NO_GPU:  # its one "GPU" only says whether somebody has rented it
            row |= {"gpu_ids": [], "num_gpus": 0, "gpu_name": None, "gpu_arch": None}
        # The marketplace's formula is unknown; like the recorded scores, this one favours speed per dollar and trust.
        row["score"] = 1.2 * row["reliability_mult"] * row["dlperf"] / max(new_slice.base_usd_hour, 0.01)
        return new_slice


@dataclass(slots=True)
class EmulatedListing:
    """A slice under its current id."""

    id: int
    machine: EmulatedMachine
    slice: Slice
    _prices: dict[PriceView, dict[str, Any]] = field(default_factory=dict)
    _encoded_prefixes: dict[PriceView, bytes] = field(default_factory=dict)

    def prices(self, view: PriceView) -> dict[str, Any]:
        """Return the fields that depend on the price in this view."""
        found = self._prices.get(view)
        if found is None:
            if len(self._prices) >= 16:
                self.clear_cache()
            base = self.slice.min_bid_usd_hour if view.bid else self.slice.base_usd_hour
            found = self._prices[view] = price_fields(self.slice.row, base, view.storage_gb)
        return found

    def row(self, view: PriceView, now: float) -> dict[str, Any]:
        """Return the whole offer as a search shows it."""
        return {**self._row_without_duration(view), "duration": self.slice.row["end_date"] - now}

    def encode(self, view: PriceView, now: float) -> bytes:
        """Return the whole offer as JSON; all but the remaining time is cached."""
        prefix = self._encoded_prefixes.get(view)
        if prefix is None:
            prefix = self._encoded_prefixes[view] = (
                msgspec.json.encode(self._row_without_duration(view))[:-1] + b',"duration":'
            )
        return b"%b%b}" % (prefix, repr(self.slice.row["end_date"] - now).encode())

    def clear_cache(self) -> None:
        """Drop the cache, after a change of price."""
        self._prices.clear()
        self._encoded_prefixes.clear()

    def _row_without_duration(self, view: PriceView) -> dict[str, Any]:
        return {"id": self.id, "ask_contract_id": self.id, **self.slice.row, **self.prices(view)}


def slice_fields(fields: dict[str, Any], gpu: GpuModel, count: int, total: int) -> dict[str, Any]:
    """Scale a machine's figures down to a slice of `count` GPUs."""
    part = count / total
    return {
        "gpu_frac": part,
        "gpu_total_ram": fields["gpu_ram"] * count,
        "cpu_cores_effective": (fields["cpu_cores"] or 0) * part,
        "cpu_ram": int(fields["cpu_ram"] * part),
        "disk_space": round(fields["disk_space"] * part, 1),
        "total_flops": gpu.tflops * count,
        "dlperf": fields["dlperf"] * count,
        "avail_vol_size": float(int(fields["avail_vol_size"] * part)),
    }


def machine_fields(gpu: GpuModel, now: float, size: int) -> dict[str, Any]:
    """Build the row of a decent, verified machine without randomness."""
    row: dict[str, Any] = msgspec.json.decode(_reference_row())
    return row | {
        "bw_nvlink": gpu.nvlink_gb_s,
        "compute_cap": gpu.compute_cap,
        "cpu_cores": 32 * size,
        "cpu_cores_effective": 32.0 * size,
        "cpu_ram": 128902 * size,
        "disk_space": 1800.0 * size,
        "dlperf": gpu.dlperf,
        "end_date": float(int(now + 180 * DAY_S)),
        "gpu_arch": gpu.arch,
        "gpu_mem_bw": gpu.memory_gb_s,
        "gpu_name": gpu.name,
        "gpu_ram": gpu.ram_mib,
        "gpu_total_ram": gpu.ram_mib * size,
        "gpu_max_power": gpu.power_w,
        "num_gpus": size,
        "start_date": float(int(now - 30 * DAY_S)),
        "total_flops": gpu.tflops * size,
        "avail_vol_size": 1227.0 * size,
    }


@cache
def _reference_row() -> bytes:
    return resources.files("gpuwatch.emulator.market").joinpath("reference_row.json").read_bytes()


def random_fields(rng: random.Random, gpu: GpuModel, now: float) -> dict[str, Any]:
    """Return what differs between machines, distributed as in recorded searches."""
    cpu_name, cores, ghz, cpu_arch = rng.choice(CPUS)
    driver, driver_vers, cuda = rng.choice(DRIVERS)
    network = network_fields(rng)
    return {
        "bundle_id": rng.randrange(10**8, 2**31),
        "cpu_name": cpu_name,
        "cpu_cores": cores if rng.random() > 0.005 else None,
        "cpu_ghz": ghz,
        "cpu_arch": cpu_arch,
        "cpu_ram": rng.choice((128902, 257754, 515822, 1031870, 2063966)),
        "cuda_max_good": cuda,
        "driver_version": driver,
        "driver_vers": driver_vers,
        "direct_port_count": rng.choice((0, 12, 63, 99, 250, 256)),
        "disk_bw": round(rng.uniform(500, 9000), 1),
        "disk_space": round(rng.uniform(300, 16000), 1),
        "dlperf": gpu.dlperf * rng.uniform(0.85, 1.1) if rng.random() > 0.01 else 0.38,
        "end_date": float(int(now + rng.choice((0.2, 3, 14, 60, 180, 400, 4000)) * DAY_S * rng.uniform(0.7, 1.3))),
        "start_date": now - rng.uniform(1, 900) * DAY_S if rng.random() > 0.06 else None,
        "geolocode": rng.randrange(10**8, 2**31) if network["geolocation"] else 0,
        "hosting_type": int(rng.random() < 0.35),
        "inet_up": network["inet_down"] * rng.uniform(0.2, 1.0),
        "mobo_name": rng.choice(BOARDS),
        "os_version": rng.choice(("22.04", "24.04", "20.04", "22.04", "12", None)),
        "pci_gen": rng.choice((3.0, 4.0, 4.0, 5.0)),
        "pcie_bw": round(rng.uniform(6.0, 55.0), 1),
        "public_ipaddr": f"203.0.113.{rng.randrange(1, 255)}",
        "static_ip": rng.random() < 0.7,
        "storage_cost": rng.choice((0.1, 0.15, 0.15, 0.2, 0.36)) / 0.75,
        "gpu_max_temp": float(rng.randrange(30, 90)),
        "gpu_display_active": rng.random() < 0.03,
        "vms_enabled": rng.random() < 0.2,
        "credit_discount_max": rng.choice((0.0, 0.2, 0.4, 0.5)),
        "avail_vol_ask_id": rng.randrange(30_000_000, 50_000_000),
        **network,
        **trust_fields(rng),
    }


def network_fields(rng: random.Random) -> dict[str, Any]:
    """Draw the place, the download speed and the price of traffic."""
    download_mbps = rng.choice((0.0, 210.4, 780.9, 2523.8, 8023.8)) * rng.uniform(0.8, 1.2)
    usd_gb = rng.choice((0.0, 0.0013020833333333333, 0.0026041666666666665, 0.013020833333333334))
    return {
        "geolocation": rng.choice(PLACES) if rng.random() > 0.005 else None,
        "inet_down": download_mbps,
        **dict.fromkeys(("inet_down_cost", "inet_up_cost"), usd_gb),
        **dict.fromkeys(("internet_down_cost_per_tb", "internet_up_cost_per_tb"), usd_gb * 1024),
    }


def trust_fields(rng: random.Random) -> dict[str, Any]:
    """Draw verification and reliability, as recorded: 55 % verified, 27 % unverified, the rest deverified."""
    draw = rng.random()
    verification = "verified" if draw < 0.55 else "unverified" if draw < 0.82 else "deverified"
    vericode = {"verified": 1, "unverified": 0}.get(verification, rng.choice((2, 4, 8, 9, 12, 14, 33)))
    reliability = round(1 - rng.expovariate(120) if draw < 0.55 else 1 - rng.expovariate(25), 7)
    reliability = max(0.5, reliability)
    verified = verification == "verified"
    return {
        "verification": verification,
        "vericode": vericode,
        "reliability": reliability,
        "reliability2": reliability,
        "reliability_mult": round(reliability**6, 7),
        "discount_rate": 0.0 if verified else None,
        "discounted_hourly": 0.0 if verified else 0,
    }


def price_fields(row: Mapping[str, Any], base_usd_hour: float, storage_gb: float) -> dict[str, Any]:
    """Price a row for one disk size.

    Args:
        row: the offer without its prices: `storage_cost`, `inet_down_cost`, `gpu_total_ram`, `dlperf`, `total_flops`.
        base_usd_hour: USD per hour for the GPUs of the whole offer: the host's price, or the minimum bid.
        storage_gb: GB of disk to include in the price.
    """
    disk = row["storage_cost"] * storage_gb / HOURS_A_MONTH
    total = base_usd_hour + disk
    ram_gib = row["gpu_total_ram"] / 1024
    return {
        "dph_base": base_usd_hour,
        "dph_total": total,
        "discounted_dph_total": total,
        "dph_total_adj": total + 2 * row["inet_down_cost"],
        "storage_total_cost": disk,
        "vram_costperhour": base_usd_hour / ram_gib if ram_gib else 0.0,
        "dlperf_per_dphtotal": row["dlperf"] / total if total else 0.0,
        "flops_per_dphtotal": row["total_flops"] / total if total else 0.0,
        "search": cost_object(base_usd_hour, disk, 0.0),
        "instance": cost_object(0, disk, 0),
    }


def cost_object(gpu_usd_hour: float, disk_usd_hour: float, premium: float) -> dict[str, Any]:
    """Build the `search` (running) or `instance` (stopped) object of an offer."""
    total = gpu_usd_hour + disk_usd_hour
    return {
        "gpuCostPerHour": gpu_usd_hour,
        "diskHour": disk_usd_hour,
        "slaPremiumPerHour": premium,
        "totalHour": total,
        "discountTotalHour": 0,
        "discountedTotalPerHour": total,
    }
