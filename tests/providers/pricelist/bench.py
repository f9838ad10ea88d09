"""What the conformance suites need to try the adapter of public price lists."""

from __future__ import annotations

from gpuwatch.emulator.clouds.pricelist import PriceListServer
from gpuwatch.testing.bench import Bench

BENCH = Bench(name="pricelist", place=PriceListServer, gpu="L40S")
