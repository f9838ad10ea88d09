"""What the seeded market sells: GPU models with the figures of recorded rows."""

from __future__ import annotations

from typing import NamedTuple


class GpuModel(NamedTuple):
    """One model in the marketplace's spelling; figures are per GPU."""

    name: str
    ram_mib: int
    compute_cap: int
    tflops: float
    dlperf: float
    memory_gb_s: float
    power_w: float
    nvlink_gb_s: float
    usd_hour: float
    weight: int
    arch: str = "nvidia"


# source: recorded searches of 2026-02/03 and 2026-08 if they contain the model; else vendors' data sheets.
GPUS = (
    GpuModel("RTX 4090", 24564, 890, 81.788928, 96.0, 879.2, 450.0, 0.0, 0.36, 30),
    GpuModel("RTX 5090", 32607, 1200, 107.0, 190.0, 1521.0, 575.0, 0.0, 0.55, 22),
    GpuModel("RTX 3090", 24576, 860, 35.6, 46.0, 832.0, 350.0, 0.0, 0.17, 16),
    GpuModel("H100 SXM", 81559, 900, 53.526528, 313.0, 2873.4, 700.0, 478.1160888671875, 1.85, 14),
    GpuModel("H100 NVL", 95830, 900, 48.3, 300.0, 3150.0, 400.0, 0.0, 1.70, 4),
    GpuModel("H100 PCIE", 81559, 900, 39.1, 270.0, 1786.0, 350.0, 0.0, 1.60, 4),
    GpuModel("H200", 143771, 900, 53.526528, 455.0, 4014.9, 700.0, 478.1160888671875, 2.35, 8),
    GpuModel("H200 NVL", 143771, 900, 48.254976, 453.0, 3881.2, 600.0, 0.0, 2.50, 3),
    GpuModel("B200", 183359, 1000, 62.0, 720.0, 6100.0, 1000.0, 956.25, 3.90, 4),
    GpuModel("B300", 275040, 1030, 66.584576, 760.0, 6130.7, 1100.0, 956.25, 5.60, 2),
    GpuModel("A100 SXM4", 81920, 800, 15.593472, 130.0, 1700.0, 400.0, 300.0, 0.90, 8),
    GpuModel("A100 PCIE", 81920, 800, 15.593472, 125.0, 1517.4, 300.0, 0.0, 0.75, 6),
    GpuModel("A100 PCIE", 40960, 800, 15.593472, 90.0, 1309.3, 250.0, 0.0, 0.55, 3),
    GpuModel("L40S", 46068, 890, 73.0, 150.0, 680.0, 350.0, 0.0, 0.55, 6),
    GpuModel("L4", 23034, 890, 30.3, 30.0, 260.0, 72.0, 0.0, 0.28, 3),
    GpuModel("RTX 6000Ada", 49140, 890, 91.1, 110.0, 780.0, 300.0, 0.0, 0.62, 5),
    GpuModel("RTX PRO 6000 WS", 97887, 1200, 125.0, 230.0, 1500.0, 600.0, 0.0, 1.05, 5),
    GpuModel("RTX A6000", 49140, 860, 38.7, 55.0, 640.0, 300.0, 0.0, 0.40, 5),
    GpuModel("RTX A5000", 24564, 860, 27.8, 40.0, 628.8, 230.0, 0.0, 0.20, 5),
    GpuModel("RTX 4070S Ti", 16376, 890, 44.1, 60.0, 600.0, 285.0, 0.0, 0.14, 4),
    GpuModel("RTX 3060", 12288, 860, 12.7, 16.0, 330.0, 170.0, 0.0, 0.07, 5),
    GpuModel("Tesla V100", 32768, 700, 11.30496, 22.8, 781.3, 250.0, 0.0, 0.14, 4),
    GpuModel("Tesla T4", 15360, 750, 8.1, 12.0, 280.0, 70.0, 0.0, 0.10, 2),
    GpuModel("RX 7900 XTX", 24560, 1100, 61.4, 40.0, 860.0, 355.0, 0.0, 0.25, 1, "amd"),
)
NO_GPU = GpuModel("none", 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)  # of a machine without GPUs
BY_NAME = {gpu.name: gpu for gpu in reversed(GPUS)}


def gpu_named(name: str) -> GpuModel:
    """Return the model of a wire spelling; an unknown name gets the figures of an RTX 4090; "none" is no GPU."""
    if name == NO_GPU.name:
        return NO_GPU
    return BY_NAME.get(name) or GPUS[0]._replace(name=name)


CPUS = (
    ("AMD EPYC 9554 64-Core Processor", 256, 3.1, "amd64"),
    ("AMD EPYC 7763 64-Core Processor", 128, 2.45, "amd64"),
    ("Xeon® Platinum 8480+", 224, 2.0, "amd64"),
    ("Xeon® Gold 6338", 128, 2.0, "amd64"),
    ("AMD Ryzen Threadripper PRO 7975WX", 64, 4.0, "amd64"),
    ("AMD Ryzen 9 7950X 16-Core Processor", 32, 4.5, "amd64"),
)
BOARDS = ("SB27B24796", "H13SSL-NT", "ROMED8-2T", "X13DEG-OAD", "Default string", "NULL", None)
PLACES = (
    "Washington, US", "California, US", "Texas, US", ", US", "Iceland, IS", "Norway, NO", "Sweden, SE", "Germany, DE",
    "Czechia, CZ", "Poland, PL", "France, FR", "United Kingdom, GB", "Japan, JP", "South Korea, KR", "Taiwan, TW",
    "Quebec, CA", "Australia, AU", "India, IN", "Viet Nam, VN", "Ukraine, UA",
)  # fmt: skip
DRIVERS = (("580.105.08", 580105008, 13.0), ("570.195.03", 570195003, 12.8), ("550.163.01", 550163001, 12.4))
