"""Shared by the tests of renting at TensorDock."""

from __future__ import annotations

import json
from typing import Any

from gpuwatch.ports import Order
from gpuwatch.testing.bench import Bench
from tests.checkout import TESTS
from tests.clouds.tensordock import TensorDock

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUXyTUuLlOwYJjQoQ0Zk0dSTy0o3FQvFnbLxrAhR9Yk o'me@desk"
BENCH = Bench(name="tensordock", place=TensorDock, gpu="RTX 4090", options={"ssh_key": SSH_KEY})
HOSTS = Bench(
    name="tensordock",
    place=TensorDock,
    gpu="RTX 4090",
    options={"ssh_key": SSH_KEY, "source": "hostnodes"},
    leaves_out={"keyless": "hosts are shown with the key alone"},
)
RECORDED = TESTS / "recorded" / "tensordock"
OFFER = "ujdlf8N_5SJybArOKNmtqsQ/geforcertx4090-pcie-24gb/2/16/64"


def order(offer_id: str = OFFER, **fields: Any) -> Order:
    return Order(**({"offer_id": offer_id, "label": "gpuwatch-abc", "image": "x/y", "disk_gb": 20.0} | fields))


def recorded(name: str) -> Any:
    """Return a recorded or documented answer, by the name of its file."""
    return json.loads((RECORDED / f"{name}.json").read_bytes())
