"""What the conformance suites need to test the Azure adapter."""

from __future__ import annotations

from gpuwatch.testing.bench import Bench
from tests.clouds.azure import AzurePrices

BENCH = Bench(name="azure", place=AzurePrices, gpu="H100 NVL")
