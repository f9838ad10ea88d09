"""A standby without the last commits is promoted: what the database lost is found again before anything is rented."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade
from tests.process.crash_matrix import somebody_rents
from tests.process.daemon_child import bargain, terminate, wait_for, wait_for_searches
from tests.process.postgres_pair import PostgresPair, postgres_pair
from tests.process.two_daemons import KEY, home_of

pytestmark = pytest.mark.slow

PACE = {"GPUWATCH_TEST_PACE": "10"}  # the wait after a promotion takes six seconds


@contextmanager
def replicated_pair() -> Iterator[PostgresPair]:
    with postgres_pair() as made:
        with closing(open_database(made.url)) as database:
            upgrade(database)
        made.wait_until_replicated()
        yield made


@pytest.fixture
def pair() -> Iterator[PostgresPair]:
    with replicated_pair() as made:
        yield made


@pytest.mark.parametrize("has_its_id", [True, False])
def test_what_a_promotion_lost_is_not_rented_again(tmp_path: Path, pair: PostgresPair, has_its_id: bool) -> None:
    """With the order under way at that moment, its instance id is in no row and no file: its label finds it."""
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market:
        somebody_rents(market, KEY)
        home = home_of(tmp_path / "a", market.url, pair.url, {"cheap": "H100"}, max_active=1, max_total=0)
        point = {} if has_its_id else {"GPUWATCH_FAILPOINT": "launch.after_send@sleep8"}
        with home.daemon(**PACE, **point) as child:
            wait_for_searches(market)
            pair.wait_until_replicated()
            pair.cut_replication()
            before = len(market.ledger.creates)
            for n in range(4):
                bargain(market, 1.5 + n / 10)
            wait_for(lambda: len(market.ledger.creates) == before + 1)
            if has_its_id:
                wait_for(lambda: home.states() == ["running"])
            market.faults.add("list", "502", times=None)  # its label is not found at once, nor is it by luck
            pair.kill_primary()
            pair.promote()
            bargain(market, 1.2)  # a better one, so that the watch fires anew
            wait_for_searches(market, 5)
            wait_for(lambda: "the database went back" in home.log())
            assert (home.states(), len(market.ledger.creates)) == ([], before + 1)
            market.faults.clear()
            wait_for(lambda: "gpuwatch label that belongs to no running launch" in home.log())
            wait_for_searches(market, 10)
            time.sleep(3)
            assert len(market.ledger.creates) == before + 1
            instance = str(next(one["id"] for one in market.instances() if "gpuwatch-" in (one["label"] or "")))
            adopted = home.run("adopt", instance, "--watch", "cheap")
            assert adopted.returncode == 0, adopted.stderr
            wait_for_searches(market, 5)
            assert len(market.ledger.creates) == before + 1
            assert terminate(child)[0] == 0


def test_a_promotion_that_lost_nothing_only_delays_renting(tmp_path: Path, pair: PostgresPair) -> None:
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market:
        somebody_rents(market, KEY)
        home = home_of(tmp_path / "a", market.url, pair.url, {"cheap": "H100"}, max_active=1, max_total=0)
        with home.daemon(**PACE) as child:
            wait_for_searches(market)
            pair.wait_until_replicated()
            pair.kill_primary()
            pair.promote()
            wait_for(lambda: "the database went back" in home.log())
            bargain(market)
            wait_for(lambda: home.states() == ["running"])
            assert terminate(child)[0] == 0


@pytest.mark.parametrize("dies_with_it", [True, False])
def test_another_host_does_not_rent_again_what_a_promotion_lost(
    tmp_path: Path, whole: bool, dies_with_it: bool
) -> None:
    """The lease's renewals are lost as well: on the promoted server it is free at once, while an order may be new."""
    for number in range(25 if whole else 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with replicated_pair() as pair:
            _promote_with_two_hosts(folder, pair, dies_with_it=dies_with_it)


def _promote_with_two_hosts(folder: Path, pair: PostgresPair, *, dies_with_it: bool) -> None:
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market:
        somebody_rents(market, KEY)
        a, b = (
            home_of(folder / name, market.url, pair.url, {"cheap": "H100"}, max_active=1, max_total=0)
            for name in ("a", "b")
        )
        with a.daemon(**PACE) as first:
            wait_for_searches(market)
            with b.daemon(**PACE) as second:
                wait_for(lambda: "this one stands by" in b.log())
                pair.wait_until_replicated()
                pair.cut_replication()
                before = len(market.ledger.creates)
                bargain(market, 1.5)
                wait_for(lambda: len(market.ledger.creates) == before + 1)
                pair.kill_primary()
                if dies_with_it:
                    first.kill()
                    first.wait()
                pair.promote()
                bargain(market, 1.2)  # a better one, so that the watch fires anew
                leader = b if dies_with_it else a
                wait_for(lambda: "label that belongs to no running launch" in a.log() + b.log())
                wait_for_searches(market, 5)
                time.sleep(3)
                assert len(market.ledger.creates) == before + 1
                assert not dies_with_it or "this host leads now" in leader.log()
                assert terminate(second)[0] == 0
                assert dies_with_it or terminate(first)[0] == 0
