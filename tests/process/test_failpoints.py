"""The daemon is killed at each named step of a launch and of its end (K02 to K09); a new one takes over."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.audit import rows
from tests.process.daemon_child import Home, bargain, terminate, wait_for

DIED = 86  # the exit code of a failpoint


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=8, delays=Delays(running_s=0.5)) as opened:
        yield opened


@pytest.fixture
def home(market: Marketplace, tmp_path: Path) -> Home:
    bargain(market)
    return Home(tmp_path, market.url)


def dies_at(home: Home, point: str) -> None:
    with home.daemon(GPUWATCH_FAILPOINT=point) as child:
        assert child.wait(timeout=240) == DIED


def state(home: Home) -> str:
    (launch,) = home.launches()
    return str(launch["state"])


def test_killed_between_intent_and_send_nothing_is_sent_later(home: Home, market: Marketplace) -> None:
    """K02: from the intent on it may have been sent, so it is looked up, not sent."""
    dies_at(home, "launch.before_send")
    with home.daemon():
        wait_for(lambda: state(home) == "unknown")
    assert market.ledger.creates == ()


@pytest.mark.parametrize("point", ["launch.after_send", "launch.after_record"])
def test_killed_after_the_send_the_one_instance_is_taken_up(home: Home, market: Marketplace, point: str) -> None:
    """K03, K04, K05: found by its label or its id; and it starts to run."""
    dies_at(home, point)
    with home.daemon():
        wait_for(lambda: state(home) == "running")
    assert len(market.ledger.creates) == 1


@pytest.mark.slow
@pytest.mark.parametrize("point", ["launch.before_destroy", "launch.after_destroy"])
def test_killed_while_it_ends_the_next_daemon_ends_it(home: Home, market: Marketplace, point: str) -> None:
    """K08, K09: the row states that it is to end."""
    with home.daemon():
        wait_for(lambda: home.states() == ["running"])
    (launch,) = home.launches()
    home.env["GPUWATCH_FAILPOINT"] = point
    assert home.run("stop", launch["launch_id"]).returncode == DIED
    assert state(home) == "stopping"
    del home.env["GPUWATCH_FAILPOINT"]
    with home.daemon():
        wait_for(lambda: state(home) == "ended")
    assert market.ledger.alive() == ()
    assert len(market.ledger.creates) == 1


def ordered(market: Marketplace) -> bool:
    return any(seen.path.startswith("/api/v0/asks/") for seen in market.requests)


@pytest.mark.slow
def test_a_stop_with_an_order_on_its_way_leaves_it_to_the_next(home: Home, market: Marketplace) -> None:
    """K17: it waits briefly, not forever; the row states what may have been created."""
    market.faults.add("create", "slow", delay_s=12.0)
    with home.daemon() as child:
        wait_for(lambda: ordered(market))
        code, took_s = terminate(child)
    assert code == 0
    assert took_s < 10
    with home.daemon():
        wait_for(lambda: state(home) == "running")
    assert len(market.ledger.creates) == 1


@pytest.mark.slow
def test_new_settings_with_an_order_on_its_way_change_nothing_of_it(home: Home, market: Marketplace) -> None:
    """C02: the reload waits for the answer to a request under the old settings, and then it is followed."""
    market.faults.add("create", "slow", delay_s=3.0)
    with home.daemon() as child:
        wait_for(lambda: ordered(market))
        home.write(url=market.url, max_runtime="2h")
        child.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded the settings" in home.log())
        wait_for(lambda: state(home) == "running")
        assert terminate(child)[0] == 0
    assert len(market.ledger.creates) == 1
    causes = [row["cause"] for row in rows(home.database_url, "SELECT cause FROM launch_event ORDER BY id")]
    assert causes == ["intent", "created", "running"]  # and not "found by its label"
