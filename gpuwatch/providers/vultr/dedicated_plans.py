"""The GPUs of Vultr's plans of type `vdm` (Dedicated Metal), which state no GPU: their configurations by name.

The memory in a name is that of all GPUs, but does not prove their number: `vcg-mi325x-252c-2872g-1536vram` has 8 GPUs
according to one public reader and 6 according to another, so it is not in the table.
source: two public readers of the list (gpuhunt, sc-crawler), read 2026-11; they agree on every plan here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class DedicatedPlan(NamedTuple):
    """The GPUs of a plan: the model, the number, and the GB of one."""

    gpu: str
    gpus: int
    memory_gb: float


DEDICATED_PLANS: Final[Mapping[str, DedicatedPlan]] = {
    "vcg-a16-6c-64g-16vram": DedicatedPlan("A16", 1, 16.0),
    "vcg-a16-96c-878g-256vram": DedicatedPlan("A16", 16, 16.0),
    "vcg-a16-96c-960g-256vram": DedicatedPlan("A16", 16, 16.0),
    "vcg-a40-24c-120g-48vram": DedicatedPlan("A40", 1, 48.0),
    "vcg-a40-96c-480g-192vram": DedicatedPlan("A40", 4, 48.0),
    "vcg-a100-12c-120g-80vram": DedicatedPlan("A100", 1, 80.0),
    "vcg-a100-96c-896g-320vram": DedicatedPlan("A100", 4, 80.0),
    "vcg-a100-96c-960g-640vram": DedicatedPlan("A100", 8, 80.0),
    "vcg-h100-216c-1914gb-640vram": DedicatedPlan("H100", 8, 80.0),
    "vcg-b200-248c-2826g-1536vram": DedicatedPlan("B200", 8, 192.0),
    "vcg-mi355x-252c-2872g-2304vram": DedicatedPlan("MI355X", 8, 288.0),
}
