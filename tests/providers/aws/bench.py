"""What the conformance suites need to test the AWS adapter. Its key is in the settings: no real one is searched."""

from __future__ import annotations

from gpuwatch.testing.bench import Bench
from tests.clouds.aws import Ec2


def sell_out(place: Ec2, offer_id: str) -> None:
    _, zone, type_, _ = offer_id.split("/")
    place.sell_out(zone, type_)


BENCH = Bench(
    name="aws",
    place=lambda: Ec2(page=7),
    gpu="T4",
    key="demo-key:demo-secret",
    options={"regions": ("us-east-1",), "list_regions": ("us-east-1",)},
    sell_out=sell_out,
    renders={307: "OutcomeUnknown"},
    leaves_out={"retry_after": "AWS names no time, and botocore waits by itself"},
    creates="Action=RunInstances",
    ends="Action=TerminateInstances",
    many=9,
)
