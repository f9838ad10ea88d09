"""What the conformance suites need to test the Nebius adapter."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from gpuwatch.testing import Bench
from tests.late import LateModule

if TYPE_CHECKING:
    from tests.clouds.grpc_relay import GrpcRelay
    from tests.clouds.nebius import Nebius

cloud = LateModule("tests.clouds.nebius")
relays = LateModule("tests.clouds.grpc_relay")

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDemoDemoDemoDemoDemoDemoDemoDemoDemoDemo demo"

_NO_HTTP = "it speaks gRPC: test_nebius_wire.py"


def _sell_out(place: Nebius, offer_id: str) -> None:
    platform, preset, region = offer_id.split("/")[:3]
    place.presets = [
        one._replace(on_demand=0, preemptible=0)
        if (one.platform, one.preset, one.region) == (platform, preset, region)
        else one
        for one in place.presets
    ]


def _relaying(url: str) -> AbstractContextManager[GrpcRelay]:
    relay: AbstractContextManager[GrpcRelay] = relays.relaying_grpc(url)
    return relay


BENCH = Bench(
    name="nebius",
    place=lambda: cloud.Nebius(most_rows=2),
    gpu="H100 SXM",
    options={"ssh_key": SSH_KEY},
    sell_out=_sell_out,
    renders={409: "OutcomeUnknown"},  # the name is taken: perhaps by an earlier transmission of this order
    leaves_out={
        "statuses": _NO_HTTP,
        "retry_after": _NO_HTTP,
        "garbage": _NO_HTTP,
        "losses": _NO_HTTP,
        "hostile": _NO_HTTP,
        "lists": _NO_HTTP,
        "disk": "its messages hold sizes as bytes: test_nebius_launcher.py",
        "image": "a system image is a setting of the provider",
    },
    creates=r"^POST /nebius\.compute\.v1\.InstanceService/Create ",
    ends=r"^POST /nebius\.compute\.v1\.InstanceService/Delete ",
    many=5,
    relaying=_relaying,
)
