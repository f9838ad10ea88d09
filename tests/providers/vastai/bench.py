"""The vast.ai adapter and its stand-in, for the conformance suites and its own tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.testing import Bench


@contextmanager
def marketplace() -> Iterator[Marketplace]:
    """A marketplace with offers, some of them odd, that rents at once; one machine has no GPU."""
    quick = Delays(created_s=0.0, ssh_s=0.0, loading_s=0.0, running_s=0.0)
    with Marketplace(size=150, delays=quick) as place:
        place.publish(gpu="none", usd_hour=0.03, cpu_cores_effective=16, cpu_ram=65536)
        yield place


def _take(place: Marketplace, offer_id: str) -> None:
    place.take(int(offer_id))


BENCH = Bench(name="vastai", place=marketplace, gpu="RTX 4090", sell_out=_take, many=60)
pointed_at = BENCH.pointed_at
