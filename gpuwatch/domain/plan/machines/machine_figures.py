"""Metrics of the owner's own machines: what the daemon last read there. What is not measured is absent. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from gpuwatch.domain.market.gpu_cards import gpu_specs
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.plan.machines.machine_use import part_of_card

if TYPE_CHECKING:
    from gpuwatch.domain.plan.machines.gpu_reading import GpuReading
    from gpuwatch.domain.plan.machines.machine_use import MachineReading

Labels = tuple[str, ...]
Values = dict[str, dict[Labels, float]]
_MIB = 1024.0 * 1024.0
_MIB_A_GIB = 1024.0


def machine_values(machines: Sequence[MachineReading], other_gpu: str) -> Values:
    """Metric → labels → value.

    Args:
        other_gpu: replaces names that are not in the catalogue.
    """
    values: Values = {}
    for machine in machines:
        values.setdefault("gpuwatch_own_machine_up", {})[(machine.host,)] = float(machine.error is None)
        if machine.error is None:
            read = values.setdefault("gpuwatch_own_machine_last_read_timestamp_seconds", {})
            read[(machine.host,)] = machine.at.timestamp()
        for index, gpu in enumerate(machine.gpus):
            figures = {
                "gpuwatch_own_gpu_utilization_ratio": None if gpu.percent is None else gpu.percent / 100,
                "gpuwatch_own_gpu_memory_used_bytes": None if gpu.used_mib is None else gpu.used_mib * _MIB,
                "gpuwatch_own_gpu_memory_total_bytes": None if gpu.total_mib is None else gpu.total_mib * _MIB,
            }
            for name, value in figures.items():
                if value is not None:
                    values.setdefault(name, {})[_labels(machine.host, index, gpu, other_gpu)] = value
    return values


def machine_prices(
    machines: Sequence[MachineReading],
    own: Mapping[str, Decimal | None],
    best: Mapping[Labels, float],
    other_gpu: str,
) -> Values:
    """The price of each GPU: the owner's own, else the market's lowest; absent if it is unknown.

    Args:
        own: host → USD per GPU-hour, if stated.
        best: (provider, GPU) → USD per GPU-hour.
        other_gpu: replaces names that are not in the catalogue.
    """
    market: dict[str, float] = {}
    for (_, name), lowest in best.items():
        market[name] = min(lowest, market.get(name, lowest))
    prices: dict[Labels, float] = {}
    for machine in machines:
        for index, gpu in enumerate(machine.gpus):
            labels = _labels(machine.host, index, gpu, other_gpu)
            stated = own.get(machine.host)
            if stated is not None:
                prices[labels] = float(stated)
            elif labels[1] in market:
                prices[labels] = market[labels[1]] * part_of_card(labels[1], gpu.total_mib)
    return {"gpuwatch_own_gpu_price_usd_hour": prices} if prices else {}


def _labels(host: str, index: int, gpu: GpuReading, other_gpu: str) -> Labels:
    name = catalog().resolve(gpu.name, None if gpu.total_mib is None else gpu.total_mib / _MIB_A_GIB).name
    return host, name if name in gpu_specs() else other_gpu, str(index)
