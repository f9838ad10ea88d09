"""A marketplace that answers less than documented: missing answers are no evidence, and block nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, terminate, wait_for

pytestmark = pytest.mark.slow
PACE = {"GPUWATCH_TEST_PACE": "240"}
SPARSE = ("instance", "user", "price_increases", "charges")


def state_of(home: Home) -> list[str]:
    return [str(launch["state"]) for launch in home.launches()]


@pytest.mark.parametrize("kind", ["404", "403", "empty_object"])
def test_with_orders_and_a_list_alone_an_instance_is_rented_and_ended(kind: str, tmp_path: Path) -> None:
    """No account, no lookup by id, no proposals, no charges."""
    with Marketplace(seed=5, key="demo-key", size=0, delays=Delays(running_s=0.1)) as market:
        for endpoint in SPARSE:
            market.faults.add(endpoint, kind, times=None)
        home = Home(tmp_path, market.url, max_runtime="1h")
        bargain(market)
        with home.daemon(**PACE) as child:
            wait_for(lambda: state_of(home) == ["running"] and market.instances())
            wait_for(lambda: state_of(home) == ["ended"])
            assert terminate(child)[0] == 0
        (launch,) = home.launches()
        assert (market.instances(), launch["end_reason"]) == ([], "max_runtime is over")
        assert str(launch["account"]).startswith("key:")


def test_an_instance_that_vanishes_there_keeps_its_launch_until_something_else_proves_it(tmp_path: Path) -> None:
    """Its list omits it, and there is no other answer: that is no proof, and no second one is rented."""
    with Marketplace(seed=5, key="demo-key", size=0, delays=Delays(running_s=0.1)) as market:
        for endpoint in SPARSE:
            market.faults.add(endpoint, "404", times=None)
        home = Home(tmp_path, market.url, max_runtime="2h")
        bargain(market)
        with home.daemon(**PACE) as child:
            wait_for(lambda: state_of(home) == ["running"])
            market.faults.add("instances", "list_empty", times=None)
            bargain(market, 1.2)
            wait_for(lambda: "no longer lists it" in home.log())
            assert state_of(home) == ["running"]
            market.faults.clear()
            wait_for(lambda: not market.instances())
            assert terminate(child)[0] == 0
        assert len(market.ledger.creates) == 1
