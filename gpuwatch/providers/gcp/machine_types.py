"""Google Cloud's machine types with GPUs: their hardware, and the parts of their price.

source: the vendor's pages of GPU machine types and public readers of its price list, read 2026-11.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SLICE: Final = "slice"  # one part contains everything for one GPU


class GcpMachine(NamedTuple):
    """One machine type. `gpus` below 1: a fraction with `memory_gib`. `accelerator`, `host`: names of parts."""

    name: str
    gpu: str
    memory_gib: float
    gpus: float
    accelerator: str
    host: str
    vcpus: int
    ram_gib: float
    ssd_gib: float = 0.0
    on_demand: bool = True


def _a2() -> list[GcpMachine]:
    high = [GcpMachine(f"a2-highgpu-{n}g", "A100 SXM 40GB", 40, n, "a100", "a2", 12 * n, 85 * n) for n in (1, 2, 4, 8)]
    mega = GcpMachine("a2-megagpu-16g", "A100 SXM 40GB", 40, 16, "a100", "a2", 96, 1360)
    ultra = [
        GcpMachine(f"a2-ultragpu-{n}g", "A100 SXM 80GB", 80, n, "a100 80gb", "a2", 12 * n, 170 * n, 375 * n)
        for n in (1, 2, 4, 8)
    ]
    return [*high, mega, *ultra]


def _a3() -> list[GcpMachine]:
    # 1g to 4g have an on-demand price, but are sold only as spot
    high = [
        GcpMachine(f"a3-highgpu-{n}g", "H100 SXM", 80, n, "h100 80gb", "a3", 26 * n, 234 * n, 750 * n, n == 8)
        for n in (1, 2, 4, 8)
    ]
    mega = GcpMachine("a3-megagpu-8g", "H100 SXM", 80, 8, "h100 80gb mega", "a3plus", 208, 1872, 6000)
    ultra = GcpMachine("a3-ultragpu-8g", "H200 SXM", 141, 8, "h200 141gb", "a3ultra", 224, 2952, 12000, False)
    return [*high, mega, ultra]


def _g2() -> list[GcpMachine]:
    gpus = {4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8}
    return [GcpMachine(f"g2-standard-{n}", "L4", 24, count, "l4", "g2", n, 4 * n) for n, count in gpus.items()]


def _g4() -> list[GcpMachine]:
    ram = {6: 22, 12: 45, 24: 90, 48: 180, 96: 360, 192: 720, 384: 1440}
    return [
        GcpMachine(f"g4-standard-{n}", "RTX PRO 6000 Server", min(2.0 * n, 96), n / 48, "rtx 6000 96gb", "g4", n, gib)
        for n, gib in ram.items()
    ]


_A4: Final = GcpMachine("a4-highgpu-8g", "B200 SXM", 180, 8, "b200", SLICE, 224, 3968, 12000, False)
MACHINES: Final = {machine.name: machine for machine in (*_a2(), *_a3(), _A4, *_g2(), *_g4())}
