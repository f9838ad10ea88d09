"""What the conformance suites need to test the Google Cloud adapter."""

from __future__ import annotations

from gpuwatch.testing.bench import Bench
from tests.clouds.gcp import GooglePrices

BENCH = Bench(
    name="gcp",
    place=GooglePrices,
    gpu="A100 SXM 40GB",
    leaves_out={"keyless": "without a key another source is read, with fewer machines: tests/providers/gcp"},
)
