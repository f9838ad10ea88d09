"""What the conformance suites need to test the Vultr adapter."""

from __future__ import annotations

from functools import partial

from gpuwatch.testing import Bench
from tests.clouds.vultr import SSH_KEY, Vultr

BENCH = Bench(
    name="vultr",
    place=partial(Vultr, page_rows=2),
    gpu="L40S",
    options={"ssh_key": SSH_KEY},
    sell_out=Vultr.sell_out,
    creates=r"^POST /instances ",
    ends=r"^DELETE /instances/",
    many=5,
)
