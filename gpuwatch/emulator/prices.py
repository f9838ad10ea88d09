"""The relations between an offer's figures: every field that depends on a price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HOURS_A_MONTH = 720  # `storage_cost` is USD per GB and month of 720 hours
DEFAULT_STORAGE_GB = 8.0  # the disk in the price if the query names none


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
