"""What the conformance suites need to test the TensorDock adapter."""

from __future__ import annotations

from typing import Any

from gpuwatch.testing.bench import Bench
from tests.clouds.tensordock import TensorDock

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUXyTUuLlOwYJjQoQ0Zk0dSTy0o3FQvFnbLxrAhR9Yk me@desk"


def sell_out(place: Any, offer_id: str) -> None:
    """Nothing is available any more, although all is still listed."""
    place.false_stock = 1_000_000


BENCH = Bench(
    name="tensordock",
    place=TensorDock,
    gpu="RTX 4090",
    options={"ssh_key": SSH_KEY},
    sell_out=sell_out,
    creates=r"^POST /api/v2/instances ",
    ends=r"^DELETE ",
    leaves_out={
        "pages": "the list is one answer; what a machine told is kept for a while, tests of our own look at it"
    },
)
