"""What the conformance suites need to try the Google Cloud adapter."""

from __future__ import annotations

from gpuwatch.emulator.clouds.gcp import GooglePrices
from gpuwatch.testing.bench import Bench

BENCH = Bench(
    name="gcp",
    place=GooglePrices,
    gpu="A100 SXM 40GB",
    leaves_out={"keyless": "without a key another source is read, with fewer machines: tests/providers/gcp"},
)
