"""What the conformance suites need to test the Hyperstack adapter."""

from __future__ import annotations

from functools import partial

from gpuwatch.testing import Bench
from tests.clouds.hyperstack import SSH_KEY, Hyperstack

BENCH = Bench(
    name="hyperstack",
    place=partial(Hyperstack, most_rows=2),
    gpu="L40",
    options={"ssh_key": SSH_KEY},
    leaves_out={"gone": "what it says when there is no stock is documented nowhere"},
    creates=r"^POST /core/virtual-machines ",
    ends=r"^DELETE /core/virtual-machines/",
    many=5,
)
