"""What the conformance suites need to try the gpuhunt adapter."""

from __future__ import annotations

from gpuwatch.emulator.clouds.gpuhunt import GpuhuntCatalogs
from gpuwatch.testing.bench import Bench

BENCH = Bench(name="gpuhunt", place=GpuhuntCatalogs, gpu="H100 SXM")
