"""The rules for every provider's market: the public suite, on every bench."""

from __future__ import annotations

from benches import BENCHES, BROKEN, classes

from gpuwatch import providers
from gpuwatch.testing.market import MarketSuite

globals().update(classes(MarketSuite, BENCHES))


def test_every_provider_has_a_bench() -> None:
    assert BROKEN == {}
    assert set(BENCHES) == set(providers.names())


def test_every_bench_bears_the_name_of_its_folder() -> None:
    assert {name: bench.name for name, bench in BENCHES.items()} == {name: name for name in BENCHES}
