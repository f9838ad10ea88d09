"""What the conformance suites need to try the Azure adapter."""

from __future__ import annotations

from gpuwatch.emulator.clouds.azure import AzurePrices
from gpuwatch.testing.bench import Bench

BENCH = Bench(name="azure", place=AzurePrices, gpu="H100 NVL")
