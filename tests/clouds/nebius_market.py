"""The market of the small Nebius on loopback, in the vendor's messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from nebius.api.nebius.capacity import v1 as capacity
from nebius.api.nebius.common import v1 as common
from nebius.api.nebius.compute import v1 as compute

Availability: Final = capacity.ResourceAdviceStatus.Availability
FRESH: Final = Availability.DataState.DATA_STATE_FRESH
STALE: Final = Availability.DataState.DATA_STATE_STALE
HIGH: Final = Availability.AvailabilityLevel.AVAILABILITY_LEVEL_HIGH
LOW: Final = Availability.AvailabilityLevel.AVAILABILITY_LEVEL_LOW
FULL: Final = Availability.AvailabilityLevel.AVAILABILITY_LEVEL_LIMIT_REACHED


class Preset(NamedTuple):
    """A row of the market: dollars an hour on demand, machines free by rental type."""

    region: str
    platform: str
    preset: str
    gpus: int
    memory: int
    usd: float
    on_demand: int
    preemptible: int
    fabric: str = "fabric-1"


PRESETS: Final = (
    Preset("eu-north1", "gpu-h100-sxm", "1gpu-16vcpu-200gb", 1, 80, 2.95, 4, 9),
    Preset("eu-north1", "gpu-h100-sxm", "8gpu-128vcpu-1600gb", 8, 80, 23.6, 0, 1, "fabric-2"),
    Preset("eu-north1", "gpu-h100-sxm", "8gpu-128vcpu-1600gb", 8, 80, 23.6, 2, 0, "fabric-3"),
    Preset("eu-north1", "gpu-l40s-a", "1gpu-8vcpu-32gb", 1, 48, 1.55, 3, 0),
    Preset("us-central1", "gpu-h200-sxm", "1gpu-16vcpu-200gb", 1, 141, 3.5, 0, 2),
    Preset("us-central1", "gpu-rtx6000", "1gpu-24vcpu-218gb", 1, 96, 1.8, 7, 0),
    Preset("eu-north1", "cpu-d3", "4vcpu-16gb", 0, 0, 0.1, 50, 0),
)
SPOT: Final = {("eu-north1", "gpu-h100-sxm"): 1.25, ("us-central1", "gpu-h200-sxm"): 1.61}


def advised(one: Preset, free: Callable[[str, bool, int], Any]) -> Any:
    """Return a row of capacity advice."""
    details = capacity.ComputeInstanceDetails
    resources = details.Preset.Resources(vcpu_count=16, memory_gibibytes=200, gpu_count=one.gpus)
    instance = details(
        platform=one.platform,
        preset=details.Preset(name=one.preset, resources=resources),
        gpu_memory_gigabytes=one.memory,
    )
    return capacity.ResourceAdvice(
        spec=capacity.ResourceAdviceSpec(region=one.region, fabric=one.fabric, compute_instance=instance),
        status=capacity.ResourceAdviceStatus(
            on_demand=free(one.platform, False, one.on_demand),
            preemptible=free(one.platform, True, one.preemptible),
        ),
    )


def listed_platforms(presets: list[Preset]) -> Any:
    """Return the platforms of a region, as gpuhunt queries them."""
    found: dict[str, list[Preset]] = {}
    for preset in presets:
        if preset.preset not in {other.preset for other in found.get(preset.platform, [])}:
            found.setdefault(preset.platform, []).append(preset)
    return compute.ListPlatformsResponse(items=[_platform(name, rows) for name, rows in found.items()])


def _platform(name: str, presets: list[Preset]) -> Any:
    shown = [
        compute.Preset(
            name=preset.preset,
            resources=compute.PresetResources(vcpu_count=16, memory_gibibytes=200, gpu_count=preset.gpus),
        )
        for preset in presets
    ]
    return compute.Platform(
        metadata=common.ResourceMetadata(name=name),
        spec=compute.PlatformSpec(gpu_memory_gigabytes=presets[0].memory, presets=shown),
        status=compute.PlatformStatus(allowed_for_preemptibles=False),
    )
