"""`gpuwatch approvals list`, `approve` and `deny`, against the embedded marketplace over HTTP, without a daemon."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.bootstrap import http_client, real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.emulator import Marketplace
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.engine.watches.evaluation_rules import EvaluationRules
from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.providers import build
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.checkout import ROOT
from tests.cli.conftest import Ran, Shell
from tests.engine.uow_fakes import FakeExecutor
from tests.upgraded_store import open_upgraded

SETTINGS = """
dry_run = {dry_run}
database_url = "{url}"
[budget]
max_usd_hour = {max_usd_hour}
[[watch]]
name = "h100"
gpu = ["H100"]
max_price = 3.60
action = "{action}"
[watch.launch]
image = "x/y"
max_runtime = "1h"
approve_within = "15m"
"""


class House:
    """One owner's settings and store, and a watch that has polled the market once."""

    def __init__(self, shell: Shell, market: Marketplace) -> None:
        self.shell, self.market = shell, market
        self.url = f"sqlite:///{shell.folder}/gpuwatch.db"
        self.store = open_upgraded(self.url)
        self.settings()
        self.offer_id = market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)

    def settings(self, dry_run: str = "false", action: str = "ask", max_usd_hour: float = 20.0) -> None:
        self.shell.settings(SETTINGS.format(dry_run=dry_run, url=self.url, action=action, max_usd_hour=max_usd_hour))

    def fires(self, ago: timedelta = timedelta(0)) -> str:
        """Let the hunt poll the market and the watch request an approval; return its id."""
        loaded, ids = load_settings(None), (f"{letter * 12}" for letter in "abcdefgh")
        rules = EvaluationRules(
            commissions={"vastai": loaded.providers["vastai"].commission},
            budget=loaded.budget,
            dry_run=loaded.dry_run,
            zone=ZoneInfo("UTC"),
            expected_views={"h100": frozenset({("vastai", False)})},
            max_age=timedelta(hours=1),
            links={},
        )
        executor = FakeExecutor()
        evaluator = Evaluator(SqlDecisionStore(self.store), rules, executor, LaunchSlots(), lambda: next(ids))
        with http_client(loaded) as http:
            provider = loaded.providers["vastai"].revealed()
            adapter = build(provider, http, lambda: real_now() - ago, itertools.count().__next__)
            hunter = Hunter(adapter.market, loaded.watches, provider.commission, evaluator, lambda *_: None, _never())
            hunter.run_round(lambda: real_now() - ago, 0.0, 0.0)
        assert executor.started == []
        (ask,) = self.shell("asks", "--json").json
        return str(ask["ask_id"])

    def state(self) -> str:
        (ask,) = self.shell("asks", "--json").json
        return str(ask["state"])

    def rented(self) -> int:
        return len(self.market.ledger.alive())


def _never() -> Any:
    import threading

    return threading.Event()


@pytest.fixture
def house(shell: Shell, market: Marketplace, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("VAST_API_KEY", "demo-key")
    made = House(shell, market)
    yield made
    made.store.close()


def one_line(ran: Ran) -> str:
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    return ran.err


def test_approve_rents_waits_for_the_answer_and_says_what_it_did(house: House) -> None:
    ask_id = house.fires()
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented(), house.state()) == (0, 1, "approved")
    (launch,) = house.shell("launches", "--json").json
    assert (launch["launch_id"], launch["state"]) == (ask_id, "starting")
    assert f"instance {launch['instance_id']}" in ran.out
    assert [str(instance) for instance in house.market.ledger.alive()] == [launch["instance_id"]]


def test_a_second_approval_rents_nothing(house: House) -> None:
    ask_id = house.fires()
    house.shell("approve", ask_id)
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented()) == (1, 1)
    assert "already approved" in one_line(ran)
    assert house.shell("deny", ask_id).code == 1


def test_an_answer_after_a_denial_changes_nothing(house: House) -> None:
    ask_id = house.fires()
    codes = [house.shell(*words).code for words in (("deny", ask_id), ("deny", ask_id), ("approve", ask_id))]
    assert (codes, house.rented(), house.state()) == ([0, 1, 1], 0, "denied")


def test_approvals_of_several_processes_at_the_same_moment_rent_once(house: House) -> None:
    ask_id = house.fires()
    command = [sys.executable, "-m", "gpuwatch", "approve", ask_id]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen(command, cwd=house.shell.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in running:
        process.communicate(timeout=240)
    assert sorted(process.returncode for process in running) == [0, 1, 1]
    assert house.rented() == 1


def test_a_risen_price_is_refused_with_the_new_price(house: House) -> None:
    ask_id = house.fires()
    house.market.reprice(house.offer_id, 2.5)
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented(), house.state()) == (1, 0, "refused")
    assert "$3.00" in one_line(ran)


def test_another_machine_is_not_rented_when_the_quoted_one_is_gone(house: House) -> None:
    ask_id = house.fires()
    house.market.withdraw(house.offer_id)
    house.market.publish(gpu="H100 SXM", count=1, usd_hour=1.0)
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented(), house.state()) == (1, 0, "refused")


def test_a_late_approval_rents_nothing(house: House) -> None:
    ask_id = house.fires(ago=timedelta(minutes=16))
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented(), house.state()) == (1, 0, "expired")
    assert "it expired at" in one_line(ran)


def test_deny_and_then_approve_rents_nothing(house: House) -> None:
    ask_id = house.fires()
    assert house.shell("deny", ask_id, "--why", "too far").code == 0
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented(), house.state()) == (1, 0, "denied")
    assert "too far" in one_line(ran)


@pytest.mark.parametrize("forged", ["zzzzzzzzzzzz", "1", "'; DROP TABLE ask; --", "gpuwatch-aaaaaaaaaaaa"])
@pytest.mark.parametrize("command", ["approve", "deny"])
def test_a_forged_id_is_wrong_usage(house: House, command: str, forged: str) -> None:
    house.fires()
    ran = house.shell(command, forged)
    assert (ran.code, house.rented(), house.state()) == (2, 0, "open")
    one_line(ran)


def test_without_an_answer_the_exit_code_is_3_and_the_question_stands(house: House) -> None:
    ask_id = house.fires()
    house.market.faults.add("search", "502", times=None)
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented(), house.state()) == (3, 0, "open")
    one_line(ran)


def test_a_lost_answer_is_exit_3_and_the_launch_stands(house: House) -> None:
    ask_id = house.fires()
    house.market.faults.add("create", "reset_after")
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.state()) == (3, "approved")
    launch = SqlLaunchRepository(house.store).get(ask_id)
    assert launch is not None
    assert launch.state is LaunchState.UNKNOWN
    assert launch.label in one_line(ran)


def test_budget_binds_as_for_any_launch(house: House) -> None:
    ask_id = house.fires()
    house.settings(max_usd_hour=2.0)
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented(), house.state()) == (1, 0, "open")
    assert "max_usd_hour" in one_line(ran)


def test_a_pause_binds_and_leaves_the_question_open(house: House) -> None:
    ask_id = house.fires()
    assert house.shell("pause").code == 0
    assert (house.shell("approve", ask_id).code, house.rented()) == (1, 0)
    assert house.shell("resume").code == 0
    assert (house.shell("approve", ask_id).code, house.rented()) == (0, 1)


def test_a_dry_run_says_what_it_would_rent_without_a_key(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VAST_API_KEY")
    house.settings(dry_run="true")
    ask_id = house.fires()
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented()) == (0, 0)
    assert "would rent H100 SXM × 1" in ran.out


def test_without_a_key_it_is_one_line(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_id = house.fires()
    monkeypatch.delenv("VAST_API_KEY")
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented(), house.state()) == (2, 0, "open")
    assert "no key for vastai" in one_line(ran)


def test_a_watch_that_does_not_ask_any_more_allows_nothing(house: House) -> None:
    ask_id = house.fires()
    house.settings(action="alert")
    ran = house.shell("approve", ask_id)
    assert (ran.code, house.rented()) == (2, 0)
    one_line(ran)


def test_asks_shows_the_quote_in_json_and_on_a_screen(house: House) -> None:
    assert house.shell("asks").out == "no quotes in the last week\n"
    ask_id = house.fires()
    (ask,) = house.shell("asks", "--json").json
    assert ask["offer"]["price_usd_hour"] == 2.4
    assert ask["deadline"] > ask["created_at"]
    assert (ask["watch"], ask["launch_id"], ask["offer"]["offer_id"]) == ("h100", None, str(house.offer_id))
    assert ask_id in house.shell("asks").out


def test_approve_in_json(house: House) -> None:
    ask_id = house.fires()
    reported = house.shell("approve", ask_id, "--json").json
    assert (reported["outcome"], reported["launch_id"]) == ("rented", ask_id)
