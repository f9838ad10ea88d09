"""What the conformance suites need to test the Shadeform adapter."""

from __future__ import annotations

from gpuwatch.testing import Bench
from tests.clouds.shadeform import Shadeform

BENCH = Bench(
    name="shadeform",
    place=lambda: Shadeform(clock=lambda: 1_795_262_400.0),  # the suites' own time
    gpu="H100 PCIe",
    sell_out=Shadeform.sell_out,
    creates=r"^POST /instances/create ",
    ends=r"^POST /instances/[^/]+/delete ",
)
