"""At every provider: stock of two places never counts as one, so that a failed start leads to the other place."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module

import pytest

from gpuwatch.ports import Query
from tests.contracts.benches import BENCHES

RENTING = sorted(name for name, bench in BENCHES.items() if bench.info.launches)


@pytest.mark.parametrize("name", RENTING)
def test_the_stock_of_each_place_has_a_name_of_its_own(name: str) -> None:
    bench = import_module(f"tests.providers.{name}.bench").BENCH
    with bench.place() as place, bench.pointed_at(place.url) as adapter:
        offers = [offer for offer in adapter.market.search(Query()).offers if offer.terms.fungible]
    places = defaultdict(set)
    for offer in offers:
        assert offer.machine_id is not None
        places[offer.machine_id].add((offer.region, offer.terms.zone, offer.gpu))
    assert all(len(found) == 1 for found in places.values())
