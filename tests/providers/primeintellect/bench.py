"""What the conformance suites need to try the Prime Intellect adapter."""

from __future__ import annotations

from gpuwatch.emulator.clouds.primeintellect import PrimeIntellect
from gpuwatch.testing.bench import Bench

BENCH = Bench(name="primeintellect", place=PrimeIntellect, gpu="H100 PCIe")
