"""What the conformance suites need to test the gpuhunt adapter."""

from __future__ import annotations

from gpuwatch.testing.bench import Bench
from tests.clouds.gpuhunt import GpuhuntCatalogs

BENCH = Bench(name="gpuhunt", place=GpuhuntCatalogs, gpu="H100 SXM")
