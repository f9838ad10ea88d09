"""What the conformance suites need to test the RunPod adapter."""

from __future__ import annotations

from gpuwatch.providers.runpod.catalogue import parse_offer_id
from gpuwatch.testing.bench import Bench
from tests.clouds.runpod import RunPod
from tests.clouds.runpod_quota import Quotas

PLENTY = Quotas(100_000, 1_000_000, 10_000_000)


def _sell_out(place: RunPod, offer_id: str) -> None:
    wanted = parse_offer_id(offer_id)
    assert wanted is not None
    place.sell_out(wanted.gpu_id, wanted.cloud, wanted.place)


BENCH = Bench(
    name="runpod",
    place=lambda: RunPod(quotas=PLENTY),
    gpu="RTX 4090",
    sell_out=_sell_out,
    renders={400: "OfferGone"},
)
