"""How the real daemon judges a marketplace whose lists omit, deny and bring back its instances."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.daemon_child import Home, bargain, wait_for

pytestmark = pytest.mark.slow

KEY = "demo-key"
FAST = {"GPUWATCH_TEST_PACE": "60"}
TO_PROVE = {"GPUWATCH_TEST_PACE": "240"}  # half an hour takes eight seconds


def _states(home: Home) -> list[str]:
    return sorted(str(launch["state"]) for launch in home.launches())


def _call(market: Marketplace, method: str, path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(
        f"{market.url}{path}", json.dumps(body).encode(), method=method,
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=240) as answered:
        assert json.load(answered)["success"]


def test_the_only_instance_of_an_account_that_its_host_ended_is_over(tmp_path: Path) -> None:
    """It stayed `running` forever, and kept its slot: an empty list proved nothing."""
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market:
        bargain(market)
        home = Home(tmp_path, market.url)
        with home.daemon(**FAST):
            wait_for(lambda: _states(home) == ["running"])
            [contract] = market.ledger.alive()
            _call(market, "DELETE", f"/api/v0/instances/{contract}/", {})
            wait_for(lambda: _states(home) == ["ended"])
        assert home.launches()[0]["end_reason"] == "gone at the provider"


def test_an_order_that_was_lost_and_made_nothing_is_given_up_in_an_empty_account(tmp_path: Path) -> None:
    """It was held until the owner intervened; offer and balance prove it."""
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market:
        bargain(market)
        market.faults.add("create", "502")
        home = Home(tmp_path, market.url)
        with home.daemon(**TO_PROVE):
            wait_for(lambda: _states(home) == ["failed", "running"])
        assert len(market.ledger.alive()) == 1


def test_an_order_that_was_lost_and_whose_label_was_edited_away_is_held(tmp_path: Path) -> None:
    """A second instance was rented for one intent."""
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market:
        bargain(market)
        bargain(market, 1.5)
        market.faults.add("list", "500", times=4)
        market.faults.add("create", "502_after")
        home = Home(tmp_path, market.url)
        with home.daemon(**TO_PROVE):
            contract = wait_for(lambda: next(iter(market.ledger.alive()), None), every_s=0.01)
            _call(market, "PUT", f"/api/v0/instances/{contract}/", {"label": "my training"})
            wait_for(lambda: _states(home) in (["held"], ["running"]))
        assert (_states(home), len(market.ledger.alive())) == (["held"], 1)


def test_nothing_is_rented_beside_what_another_installation_rented(tmp_path: Path) -> None:
    """Two installations on one account exceeded `max_active`, and the alert came after the rent."""
    with Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market:
        bargain(market)
        bargain(market, 1.5)
        (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
        first, second = Home(tmp_path / "a", market.url), Home(tmp_path / "b", market.url)
        with first.daemon():
            wait_for(lambda: _states(first) == ["running"])
            with second.daemon():
                wait_for(lambda: "a gpuwatch label that are not in this database" in second.log())
                assert second.launches() == []
                [contract] = market.ledger.alive()
                assert second.run("adopt", str(contract), "--not-mine").returncode == 0
                wait_for(lambda: _states(second) == ["running"])
        assert len(market.ledger.alive()) == 2
