"""Approvals, with real processes: the daemon asks, the owner approves beside it; after any death one is rented."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.audit import rows
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for, wait_for_searches
from tests.telegram_double import Shown, TelegramDouble, telegram

pytestmark = pytest.mark.slow
PACE = {"GPUWATCH_TEST_PACE": "240"}  # the half hour that proves absence takes eight seconds


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="demo-key", size=40, delays=Delays(running_s=0.5)) as opened:
        yield opened


def asks(home: Home) -> list[dict[str, Any]]:
    found = home.run("asks", "--json")
    return json.loads(found.stdout) if found.returncode == 0 else []


def alerts(double: TelegramDouble) -> list[Shown]:
    """Return the messages without the pictures, which are silent replies and may come at any time."""
    return [one for one in tuple(double.shown) if one.replies_to is None]


def approve(home: Home, ask_id: str, **env: str) -> int:
    ran = home.run("approve", ask_id, **env)
    assert "Traceback" not in ran.stderr
    return ran.returncode


def test_the_daemon_asks_once_and_follows_what_was_approved_beside_it(market: Marketplace, tmp_path: Path) -> None:
    """`repeat_every` is a second: a request that is open is not repeated."""
    bargain(market, 0.5)
    with telegram() as double:
        home = Home(tmp_path, market.url, action="ask", extra=notify_by(double))
        with home.daemon() as child:
            wait_for(lambda: len(alerts(double)) >= 1)
            wait_for_searches(market, 20)
            (ask,) = asks(home)
            assert len(alerts(double)) == 1
            assert f"gpuwatch approvals approve {ask['ask_id']}" in alerts(double)[0].text
            assert market.ledger.creates == ()
            assert approve(home, ask["ask_id"]) == 0
            wait_for(lambda: home.states() == ["running"])
            assert approve(home, ask["ask_id"]) == 1
            assert terminate(child)[0] == 0
    assert (len(market.ledger.creates), home.launches()[0]["launch_id"]) == (1, ask["ask_id"])


def test_approving_a_withdrawn_quote_while_another_offer_matches_is_no_alert_per_poll(
    market: Marketplace, tmp_path: Path
) -> None:
    """Its own request is still open. The default `repeat_every`; the daemon restarts in between."""
    bargain(market, 1.5)
    with telegram() as double:
        home = Home(tmp_path, market.url, action="ask", extra=notify_by(double), repeat_every="6h")
        with home.daemon() as child:
            wait_for(lambda: len(alerts(double)) == 1)
            cheaper = bargain(market, 0.5)
            wait_for(lambda: len(alerts(double)) == 2)
            newest = next(ask for ask in asks(home) if ask["offer"]["listed_usd_hour"] < 1.0)
            market.withdraw(cheaper)
            assert approve(home, newest["ask_id"]) == 1
            wait_for_searches(market, 20)
            terminate(child)
        with home.daemon() as child:
            wait_for_searches(market, 20)
            terminate(child)
    assert len(alerts(double)) == len(asks(home)) == 2


@pytest.mark.parametrize(
    ("point", "creates", "state"),
    [("intent.after_commit", 0, "failed"), ("launch.before_send", 0, "failed"), ("launch.after_send", 1, "running")],
)
def test_an_approval_that_dies_is_settled_by_the_daemon_and_never_sent_again(
    market: Marketplace, tmp_path: Path, point: str, creates: int, state: str
) -> None:
    """A launch that may never have been sent is given up once offer and balance prove that nothing was created."""
    home = Home(tmp_path, market.url, action="ask")
    bargain(market, 0.5)
    with home.daemon() as child:
        (ask,) = wait_for(lambda: asks(home))
        terminate(child)
    assert approve(home, ask["ask_id"], GPUWATCH_FAILPOINT=point) == 86
    assert [(one["ask_id"], one["state"]) for one in asks(home)] == [(ask["ask_id"], "approved")]
    assert approve(home, ask["ask_id"]) == 1
    with home.daemon(**PACE) as child:
        wait_for(lambda: home.states() == [state])
        terminate(child)
    assert len(market.ledger.creates) == creates
    assert len(market.ledger.alive()) == creates


def rent_elsewhere(market: Marketplace) -> str:
    """Let another installation on the account rent another GPU; return the id of its instance."""
    offer_id = market.publish(gpu="RTX 4090", count=1, usd_hour=0.3)
    body = {"image": "some/image", "disk": 10, "label": "gpuwatch-" + "z" * 12 + "-otherone-watchwid"}
    asked = urllib.request.Request(
        f"{market.url}/api/v0/asks/{offer_id}/", json.dumps(body).encode(), method="PUT",
        headers={"Authorization": "Bearer demo-key", "Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(asked, timeout=240) as answer:
        return str(json.load(answer)["new_contract"])


def test_an_approval_beside_an_instance_of_nobody_rents_nothing(market: Marketplace, tmp_path: Path) -> None:
    """An instance on the daemon's list blocks renting for every command, until the owner settles it."""
    home = Home(tmp_path, market.url, action="ask")
    bargain(market, 0.5)
    with home.daemon() as child:
        (ask,) = wait_for(lambda: asks(home))
        other = rent_elsewhere(market)
        wait_for(lambda: rows(home.database_url, "SELECT 1 FROM unknown_instance"))
        refused = home.run("approve", ask["ask_id"])
        assert refused.returncode == 1
        assert other in refused.stdout + refused.stderr
        assert len(market.ledger.creates) == 1
        assert home.run("adopt", other, "--not-mine").returncode == 0
        assert approve(home, ask["ask_id"]) == 0
        assert terminate(child)[0] == 0
    assert len(market.ledger.creates) == 2
