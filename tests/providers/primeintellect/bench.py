"""What the conformance suites need to try the Prime Intellect adapter."""

from __future__ import annotations

from gpuwatch.testing.bench import Bench
from tests.clouds.primeintellect import PrimeIntellectServer

BENCH = Bench(name="primeintellect", place=PrimeIntellectServer, gpu="H100 PCIe")
