"""What the conformance suites need to test the adapter of public price lists."""

from __future__ import annotations

from gpuwatch.testing.bench import Bench
from tests.clouds.pricelist import PriceListServer

BENCH = Bench(
    name="pricelist",
    place=PriceListServer,
    gpu="L40S",
    leaves_out={"whole": "without exchange rates it takes older ones, and says so: tests of our own look at it"},
)
