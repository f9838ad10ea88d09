"""Several daemons on one PostgreSQL: one leads, and another takes over whatever happens to it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.black_hole import black_hole
from tests.conftest import Postgres
from tests.process.audit import Audit, Limits
from tests.process.crash_matrix import somebody_rents
from tests.process.daemon_child import Home, bargain, terminate, wait_for, wait_for_searches
from tests.process.fork_server import ForkedProcess
from tests.process.two_daemons import KEY, home_of, orders

pytestmark = pytest.mark.slow

TAKEN_OVER_S = 20.0


@pytest.fixture
def shared_url(postgres: Postgres) -> Iterator[str]:
    url = postgres.upgraded()
    yield url
    postgres.drop(url)


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as opened:
        somebody_rents(opened, KEY)
        yield opened


@contextmanager
def running(homes: Sequence[Home]) -> Iterator[list[ForkedProcess]]:
    """The daemons of these folders; the first one leads."""
    with ExitStack() as stack:
        children = []
        for home in homes:
            children.append(stack.enter_context(home.daemon()))
            wait_for(lambda home=home: "watching" in home.log())
        yield children


def searches(market: Marketplace) -> list[float]:
    return [one.arrived_ns / 1e9 for one in tuple(market.requests) if one.path.startswith("/api/v0/bundles")]


@pytest.mark.parametrize("what", ["kill -9", "SIGSTOP", "black hole"])
def test_another_host_takes_over_within_twenty_seconds(
    tmp_path: Path, shared_url: str, market: Marketplace, what: str
) -> None:
    hole, through = black_hole(shared_url)
    urls = {"a": through if what == "black hole" else shared_url, "b": shared_url}
    a, b = (home_of(tmp_path / name, market.url, url, {"cheap": "H100"}) for name, url in urls.items())
    with running([a, b]) as (first, second):
        wait_for_searches(market)
        assert "this one stands by" in b.log()
        began_s = time.monotonic()
        if what == "black hole":
            hole.swallows.set()
        else:
            os.kill(first.pid, signal.SIGKILL if what == "kill -9" else signal.SIGSTOP)
        wait_for(lambda: "this host leads now" in b.log(), every_s=0.05)
        wait_for_searches(market, 1)
        assert time.monotonic() - began_s < TAKEN_OVER_S
        gaps = [later - earlier for earlier, later in pairwise(searches(market))]
        assert max(gaps) < TAKEN_OVER_S
        bargain(market, 1.5)
        wait_for(lambda: b.states() == ["running"])
        bargain(market, 1.0)  # what one that sleeps would order when it wakes
        if what == "SIGSTOP":
            os.kill(first.pid, signal.SIGCONT)
        hole.swallows.clear()
        if what != "kill -9":
            wait_for(lambda: "it stands by" in a.log())
            assert terminate(first)[0] == 0
        assert terminate(second)[0] == 0
    assert sum(orders(market).values()) == 2  # somebody's, and that of the new leader
    assert Audit(market, shared_url, {"cheap": Limits(1, 1)}, None).faults() == []
    hole.close()
