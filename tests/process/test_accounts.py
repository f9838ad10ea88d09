"""A key of another account: its list and answers prove nothing about launches of the first. With the real daemon."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving
from tests import loopback_client
from tests.process.daemon_child import Home, bargain, terminate, wait_for, wait_for_searches

PACE = {"GPUWATCH_TEST_PACE": "60"}  # ten minutes of absence pass in ten seconds
OTHER_KEY = "another-key"
INSTANCES = "/api/v1/instances/"


@pytest.fixture
def first() -> Iterator[Marketplace]:
    with Marketplace(seed=1, size=3, odd_rows=False) as market:
        yield market


@pytest.fixture
def second() -> Iterator[Marketplace]:
    """Another account, with one unrelated instance: its lists are never empty."""
    with Marketplace(seed=2, size=3, odd_rows=False, account_id=999, key=OTHER_KEY) as market:
        for _ in range(3):  # ids that the first marketplace does not assign
            order = f"{market.url}/api/v0/asks/{bargain(market)}/"
            body = {"image": "a", "disk": 10, "label": "by hand"}
            headers = {"Authorization": f"Bearer {OTHER_KEY}"}
            loopback_client.request("PUT", order, json=body, headers=headers).raise_for_status()
        yield market


def _rented(home: Home, market: Marketplace) -> str:
    bargain(market)
    with home.daemon() as child:
        wait_for(lambda: home.states() == ["running"])
        (launch,) = home.launches()
        assert launch["account"] == "123456"
        assert terminate(child)[0] == 0
    return str(launch["launch_id"])


def _lists(market: Marketplace) -> int:
    return sum(seen.path.startswith(INSTANCES) for seen in tuple(market.requests))


def _listed_more(market: Marketplace, count: int) -> None:
    before = _lists(market)
    wait_for(lambda: _lists(market) >= before + count)


def test_a_reload_with_a_key_of_another_account_is_refused(
    first: Marketplace, second: Marketplace, tmp_path: Path
) -> None:
    home = Home(tmp_path, first.url)
    _rented(home, first)
    with home.daemon(**PACE) as child:
        wait_for(lambda: home.log().count("watching") == 2)
        _listed_more(first, 1)
        bargain(second)
        home.write(url=second.url, key=OTHER_KEY)
        child.send_signal(signal.SIGHUP)
        wait_for(lambda: "the old ones stay in effect" in home.log() or _lists(second) > 40)
        _listed_more(first, 2)
        assert "belongs to another account than launch" in home.log()
        child.send_signal(signal.SIGHUP)
        wait_for(lambda: home.log().count("the old ones stay in effect") >= 2)
        home.write(url=first.url)
        # at this pace a busy marketplace may not answer in time, and its owner tries again
        wait_for(lambda: child.send_signal(signal.SIGHUP) or home.log().count("watching") >= 3, every_s=3.0)
        assert terminate(child)[0] == 0
    about = [alert for alert in json.loads(home.run("alerts", "--json").stdout) if alert["subject"] == "settings"]
    said = [(alert["kind"], alert["severity"]) for alert in about]
    assert (said[0], said[-1], said.count(said[-1])) == (("daemon", "warning"), ("recovered", "info"), 1)
    assert set(said) == {said[0], said[-1]}  # another refusal, if the marketplace did not answer in time
    assert "belongs to another account than launch" in about[0]["facts"]["Settings"]
    (launch,) = home.launches()
    assert launch["state"] == "running"
    assert _lists(second) == 0
    assert (len(first.instances()), len(second.instances())) == (1, 3)


def test_a_start_with_a_key_of_another_account_judges_and_rents_nothing(
    first: Marketplace, second: Marketplace, tmp_path: Path
) -> None:
    home = Home(tmp_path, first.url)
    launch_id = _rented(home, first)
    bargain(second)
    home.write(url=second.url, key=OTHER_KEY)
    with home.daemon(**PACE) as child:
        _listed_more(second, 25)  # the old rules took ten for the proof of its absence
        wait_for_searches(second)
        assert terminate(child)[0] == 0
    (launch,) = home.launches()
    assert (launch["launch_id"], launch["state"]) == (launch_id, "running")
    assert len(second.instances()) == 3
    held = json.loads(home.run("alerts", "--kind", "held", "--json").stdout)  # others repeat each second
    (alert,) = [one for one in held if one["subject"] == launch_id][-1:]
    assert (alert["kind"], alert["severity"]) == ("held", "critical")
    assert "no longer reach it" in alert["headline"]
    home.write(url=first.url)
    stopped = home.run("stop", launch_id)
    assert stopped.returncode == 0, stopped.stderr
    assert not first.instances()


def test_while_the_account_of_a_new_key_is_not_known_nothing_is_judged_and_nothing_rented(
    first: Marketplace, second: Marketplace, tmp_path: Path
) -> None:
    home = Home(tmp_path, first.url)
    _rented(home, first)
    bargain(second)
    home.write(url=second.url, key=OTHER_KEY)
    second.faults.add("user", "503", times=None)
    with home.daemon(**PACE) as child:
        wait_for_searches(second, 6)
        child.send_signal(signal.SIGHUP)
        assert terminate(child)[0] == 0
    assert [launch["state"] for launch in home.launches()] == ["running"]
    assert len(second.instances()) == 3
    assert not _lists(second)


def test_a_known_key_needs_no_answer_about_its_account(first: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, first.url, max_runtime="1m", ready_within="1m")
    _rented(home, first)
    first.faults.add("user", "503", times=None)
    with home.daemon(**PACE) as child:
        wait_for(lambda: not first.instances())
        assert terminate(child)[0] == 0


@contextmanager
def by_key(first: Marketplace, second: Marketplace) -> Iterator[str]:
    """One address, two accounts: the key decides which marketplace answers."""

    def answer(request: ReceivedRequest, wire: ReplyWriter) -> None:
        market = second if OTHER_KEY in request.headers.get("authorization", "") else first
        kept = {name: value for name, value in request.headers.items() if name in {"authorization", "content-type"}}
        found = loopback_client.request(request.method, market.url + request.target, content=request.body, headers=kept)
        wire.answer(found.status_code, found.content)

    with serving(answer) as server:
        yield server.url


def test_with_the_previous_key_what_is_left_there_is_followed_and_ended(
    first: Marketplace, second: Marketplace, tmp_path: Path
) -> None:
    with by_key(first, second) as url:
        home = Home(tmp_path, url)
        launch_id = _rented(home, first)
        with home.daemon() as child:
            wait_for(lambda: home.log().count("watching") == 2)
            _listed_more(first, 1)
            for _ in range(2):  # the second of them has an id that the first marketplace has not given
                bargain(second)
            home.write(url=url, key=OTHER_KEY, extra='previous_api_key = "demo-key"\n', max_active=2, max_total=2)
            child.send_signal(signal.SIGHUP)
            wait_for(lambda: home.states().count("running") == 2)
            assert {launch["account"] for launch in home.launches()} == {"123456", "999"}
            stopped = home.run("stop", launch_id)
            assert stopped.returncode == 0, stopped.stderr
            assert terminate(child)[0] == 0
        assert (len(first.instances()), len(second.instances())) == (0, 4)
        assert "no longer reach it" not in home.run("alerts", "--json").stdout
