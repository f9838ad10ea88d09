"""Several daemons on one PostgreSQL: one leads, and another takes over whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from gpuwatch.emulator import Delays, Marketplace
from tests.black_hole import black_hole
from tests.process.audit import Audit, Limits, rows
from tests.process.crash_matrix import somebody_rents
from tests.process.daemon_child import Home, bargain, terminate, wait_for, wait_for_searches
from tests.process.fork_server import ForkedProcess
from tests.process.two_daemons import KEY, home_of, orders

pytestmark = pytest.mark.slow

TAKEN_OVER_S = 20.0
INTERVAL_S = 0.8
MANY = 3  # 16 with `--whole`
LEADS_NOW = "this host leads now"
LATE_S = 0.5  # of a request on a busy machine


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


def gaps_of(market: Marketplace) -> list[float]:
    return [later - earlier for earlier, later in pairwise(searches(market))]


def assert_spaced(market: Marketplace) -> None:
    """Nobody searches more often than one host may; one request may arrive late, and so the next one soon after it."""
    assert min(gaps_of(market)) > INTERVAL_S - LATE_S
    times = searches(market)
    assert len(times) <= (times[-1] - times[0] + LATE_S) / INTERVAL_S + 1


@pytest.mark.parametrize("what", ["kill -9", "SIGSTOP", "black hole"])
def test_another_host_takes_over_within_twenty_seconds(
    tmp_path: Path, store_url: str, market: Marketplace, what: str
) -> None:
    hole, through = black_hole(store_url)
    urls = {"a": through if what == "black hole" else store_url, "b": store_url}
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
        assert max(gaps_of(market)) < TAKEN_OVER_S
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
    assert Audit(market, store_url, {"cheap": Limits(1, 1)}, None).faults() == []
    hole.close()


def test_standbys_cost_little_and_one_of_them_takes_over(
    tmp_path: Path, store_url: str, market: Marketplace, whole: bool
) -> None:
    """At most two connections and two transactions a second each; fifty and their leader fit into the default hundred.

    Whoever led elsewhere for an hour ends; then the standby that leads is killed.
    """
    _elsewhere(store_url)
    names = [f"standby-{number}" for number in range(50 if whole else 4)]
    homes = {name: home_of(tmp_path / name, market.url, _named(store_url, name), {"cheap": "H100"}) for name in names}
    before = len(searches(market))
    with running(list(homes.values())) as children:
        time.sleep(3)
        began_s, at_first, most = time.monotonic(), _commits(store_url), 0
        while time.monotonic() - began_s < 20:
            found = _connections(store_url)
            most = max(most, *(found.count(name) for name in names))
            time.sleep(0.5)
        own = 1 + 20 * 2 * 2  # the queries of this test
        a_second = (_commits(store_url) - at_first - own) / (time.monotonic() - began_s)
        print(f"{len(names)} standbys: {most} connections each, {a_second:.1f} transactions a second together")
        assert most <= 2
        assert a_second <= 2 * len(names)
        assert len(searches(market)) == before
        _change(store_url, "UPDATE daemon_lease SET expires_at_ms = 0")
        leader = wait_for(lambda: next((name for name, home in homes.items() if LEADS_NOW in home.log()), None))
        wait_for_searches(market)
        killed = children.pop(names.index(leader))
        killed.kill()
        killed.wait()
        began_s = time.monotonic()
        wait_for_searches(market, 1)
        gap_s, connections = time.monotonic() - began_s, len(_connections(store_url))
        print(f"another one searches after {gap_s:.1f} s; {connections} connections of {_most_connections(store_url)}")
        assert gap_s < TAKEN_OVER_S
        assert connections < _most_connections(store_url) == 100
        for child in children:
            child.send_signal(signal.SIGTERM)
        assert [child.wait(timeout=240) for child in children] == [0] * len(children)
    logs = [home.log() for home in homes.values()]
    assert sum(LEADS_NOW in log for log in logs) == 2
    assert "Traceback" not in "".join(logs)


def _named(url: str, name: str) -> str:
    return make_url(url).update_query_dict({"application_name": name}).render_as_string(hide_password=False)


def _connections(url: str) -> list[str]:
    query = "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
    return [row["application_name"] for row in rows(url, query)]


def _most_connections(url: str) -> int:
    return int(rows(url, "SELECT setting FROM pg_settings WHERE name = 'max_connections'")[0]["setting"])


def _elsewhere(url: str) -> None:
    """Another host leads for an hour."""
    columns = "role, holder, epoch, since_ms, expires_at_ms, steps_down, lineage"
    now_ms = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
    _change(url, f"INSERT INTO daemon_lease ({columns}) VALUES ('main', 'z', 1, 0, {now_ms} + 3600000, false, '')")


def _change(url: str, statement: str) -> None:
    engine = create_engine(make_url(url))
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


def _commits(url: str) -> int:
    time.sleep(1.5)  # a session reports what it counted at most once a second
    query = "SELECT xact_commit AS count FROM pg_stat_database WHERE datname = current_database()"
    return int(rows(url, query)[0]["count"])


@pytest.mark.parametrize("hosts", [1, 2, MANY])
def test_any_number_of_hosts_searches_as_often_as_one(
    tmp_path: Path, store_url: str, market: Marketplace, hosts: int, whole: bool
) -> None:
    hosts = 16 if whole and hosts == MANY else hosts
    homes = [home_of(tmp_path / str(n), market.url, store_url, {"cheap": "H100"}) for n in range(hosts)]
    for home in homes:
        _replace(home, 'search_interval = "0.01s"', f'search_interval = "{INTERVAL_S}s"')
    with running(homes) as children:
        wait_for_searches(market)
        began_s = time.monotonic()
        wait_for_searches(market, 10)
        spent_s = time.monotonic() - began_s
        assert [terminate(child)[0] for child in children] == [0] * hosts
    assert spent_s > 10 * INTERVAL_S - LATE_S
    assert_spaced(market)


def test_the_leader_steps_down_when_its_owner_asks_and_the_spacing_of_searches_stays(
    tmp_path: Path, store_url: str, market: Marketplace
) -> None:
    a, b = (home_of(tmp_path / name, market.url, store_url, {"cheap": "H100"}) for name in ("a", "b"))
    for home in (a, b):
        _replace(home, 'search_interval = "0.01s"', f'search_interval = "{INTERVAL_S}s"')
    with running([a, b]) as children:
        wait_for_searches(market)
        asked = b.run("hosts", "step-down")
        assert asked.returncode == 0, asked.stderr
        wait_for(lambda: "this host leads now" in b.log())
        wait_for_searches(market)
        assert "it stands by" in a.log()
        states = [host["state"] for host in json.loads(a.run("hosts", "--json").stdout)]
        assert sorted(states) == ["leads", "stands by"]
        bargain(market)
        wait_for(lambda: b.states() == ["running"])
        assert [terminate(child)[0] for child in children] == [0, 0]
    assert_spaced(market)
    assert max(gaps_of(market)) < TAKEN_OVER_S


def test_a_rate_limit_that_one_host_met_holds_for_the_next(tmp_path: Path, store_url: str, market: Marketplace) -> None:
    """Retry-After: no host searches before, whichever leads meanwhile."""
    a, b = (home_of(tmp_path / name, market.url, store_url, {"cheap": "H100"}) for name in ("a", "b"))
    with running([a, b]) as (first, second):
        wait_for_searches(market)
        market.faults.add("search", "429", shape="headers", threshold_s=45)
        held = "SELECT kind FROM provider_hold WHERE kind = 'search'"
        wait_for(lambda: rows(store_url, held), within_s=300)
        refused_s, before = time.monotonic(), len(searches(market))
        first.kill()
        first.wait()
        wait_for(lambda: "this host leads now" in b.log())
        wait_for(lambda: time.monotonic() > refused_s + 35)
        assert len(searches(market)) == before
        wait_for(lambda: len(searches(market)) > before, within_s=300)
        assert terminate(second)[0] == 0


def _replace(home: Home, before: str, after: str) -> None:
    path = home.folder / "gpuwatch.toml"
    path.write_text(path.read_text().replace(before, after))


def test_one_that_slept_between_its_last_check_and_the_order_sends_nothing(
    tmp_path: Path, store_url: str, market: Marketplace
) -> None:
    a, b = (home_of(tmp_path / name, market.url, store_url, {"cheap": "H100"}) for name in ("a", "b"))
    with a.daemon(GPUWATCH_FAILPOINT="launch.before_send@stop") as first:
        wait_for(lambda: "watching" in a.log())
        bargain(market)
        wait_for(lambda: Path(f"/proc/{first.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        with b.daemon() as second:
            wait_for(lambda: "this host leads now" in b.log())
            wait_for_searches(market)
            before = sum(orders(market).values())
            os.kill(first.pid, signal.SIGCONT)
            wait_for(lambda: "another host leads" in a.log())
            wait_for(lambda: b.states() == ["failed", "running"])  # of the new leader, now that the slot is free
            assert sum(orders(market).values()) == before + 1
            assert [terminate(child)[0] for child in (first, second)] == [0, 0]
    assert Audit(market, store_url, {"cheap": Limits(1, 1)}, None).faults() == []
