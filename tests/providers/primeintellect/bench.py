"""What the conformance suites need to test the Prime Intellect adapter."""

from __future__ import annotations

from gpuwatch.testing.bench import Bench
from tests.clouds.primeintellect import PrimeIntellectServer


def place() -> PrimeIntellectServer:
    """Two pods per page, and only rentable offers: none prepaid, none in euros."""
    made = PrimeIntellectServer()
    made.rows = [row for row in made.rows if row["prepaidTime"] is None and row["prices"]["currency"] == "USD"]
    made.pod_page_rows = 2
    return made


BENCH = Bench(
    name="primeintellect",
    place=place,
    gpu="H100 PCIe",
    sell_out=PrimeIntellectServer.sell_out,
    creates=r"^POST /api/v1/pods/ ",
    ends=r"^DELETE /api/v1/pods/",
)
