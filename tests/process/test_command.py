"""`action = "command"` in the real daemon: the owner's command runs at most once, whenever it dies."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.emulator import Marketplace
from tests.process.daemon_child import Home, bargain, terminate, wait_for, wait_for_searches

WATCH = """
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 2.40
action = "command"
command = {command}
command_timeout = "60s"
repeat_every = "1s"

[watch.launch]
max_runtime = "1h"
"""
SCRIPT = """#!/bin/sh
echo "$@" >> {folder}/ran
{then}
"""


class CommandHome(Home):
    """A daemon whose only watch runs a script that records each of its runs."""

    def __init__(self, folder: Path, url: str, then: str = "exit 0", **wanted: Any) -> None:
        super().__init__(folder, url, **wanted)
        script = folder / "rent"
        script.write_text(SCRIPT.format(folder=folder, then=then.format(folder=folder)))
        script.chmod(0o755)
        words = json.dumps([str(script), "{launch_id}", "{gpu_count}", "{max_price}", "{region}"])
        path = folder / "gpuwatch.toml"
        path.write_text(path.read_text().partition("[[watch]]")[0] + WATCH.format(command=words))

    def states(self) -> list[str]:
        """Also works before the daemon has created its database."""
        return [str(launch["state"]) for launch in self.launches()]

    @property
    def runs(self) -> list[str]:
        path = self.folder / "ran"
        return path.read_text().splitlines() if path.exists() else []


def test_an_offer_under_the_limit_runs_the_command_once_and_stays_reserved(tmp_path: Path) -> None:
    with Marketplace(seed=1, key="demo-key", size=1, odd_rows=False) as market:
        home = CommandHome(tmp_path, market.url)
        bargain(market)
        with home.daemon() as child:
            wait_for(lambda: home.states() == ["running"])
            wait_for_searches(market)
            (launch,) = home.launches()
            assert (launch["provider"], launch["instance_id"], launch["watch"]) == ("command", None, "cheap")
            assert home.run("stop", launch["launch_id"]).returncode == 2
            assert terminate(child)[0] == 0
        assert home.run("launches", "resolve", launch["launch_id"], "--absent").returncode == 0
        assert home.states() == ["ended"]
        (words,) = home.runs
        assert words.split()[:3] == [launch["launch_id"], "1", "2.4000"]
        assert not market.ledger.creates


@pytest.mark.parametrize("point", ["intent.after_commit", "running.before_record"])
def test_a_daemon_that_dies_beside_its_command_never_runs_it_again(tmp_path: Path, point: str) -> None:
    """Before it starts, and after it has ended with 0: the next daemon cannot tell them apart, and holds the launch."""
    with Marketplace(seed=1, key="demo-key", size=1, odd_rows=False) as market:
        home = CommandHome(tmp_path, market.url)
        bargain(market)
        with home.daemon(GPUWATCH_FAILPOINT=f"{point}@kill") as child:
            child.wait(timeout=240)
        assert f"failpoint {point}" in home.log()
        ran = len(home.runs)
        assert ran == (0 if point == "intent.after_commit" else 1)
        assert home.states() == ["requested"]
        with home.daemon():
            wait_for(lambda: home.states() == ["held"])
            wait_for_searches(market)
        with home.daemon():
            wait_for_searches(market)
        assert (home.states(), len(home.runs)) == (["held"], ran)
        alerts = json.loads(home.run("alerts", "--json").stdout)
        assert sum(alert["headline"] == "cheap: held: its command may have rented" for alert in alerts) == 1
        (launch,) = home.launches()
        assert home.run("launches", "resolve", launch["launch_id"], "--adopt", "my-cluster").returncode == 0
        assert home.states() == ["running"]


def test_a_daemon_killed_while_its_command_runs_holds_it_too(tmp_path: Path) -> None:
    with Marketplace(seed=1, key="demo-key", size=1, odd_rows=False) as market:
        home = CommandHome(tmp_path, market.url, then="while [ ! -e {folder}/go ]; do sleep 0.1; done")
        bargain(market)
        with home.daemon() as child:
            wait_for(lambda: home.runs)
            child.kill()
            child.wait(timeout=240)
        with home.daemon():
            wait_for(lambda: home.states() == ["held"])
            wait_for_searches(market)
        (tmp_path / "go").touch()
        assert len(home.runs) == 1


@pytest.mark.parametrize(("then", "states"), [("exit 75", "failed"), ("echo no quota >&2; exit 1", "held")])
def test_only_the_documented_exit_code_releases_the_reservation(tmp_path: Path, then: str, states: str) -> None:
    with Marketplace(seed=1, key="demo-key", size=1, odd_rows=False) as market:
        home = CommandHome(tmp_path, market.url, then=then)
        bargain(market)
        with home.daemon():
            wait_for(lambda: states in home.states())
            wait_for_searches(market)
        if states == "held":
            assert len(home.runs) == 1
            (launch,) = home.launches()
            events = json.loads(home.run("launches", "show", launch["launch_id"], "--json").stdout)
            assert events[-1]["provider_words"] == "no quota"


def test_a_dry_run_says_what_would_run_and_runs_nothing(tmp_path: Path) -> None:
    with Marketplace(seed=1, key="demo-key", size=1, odd_rows=False) as market:
        home = CommandHome(tmp_path, market.url, dry_run="true")
        bargain(market)
        with home.daemon():
            wait_for(lambda: "Its command: " in home.log())
            wait_for_searches(market)
        assert home.runs == []


def test_a_reload_waits_for_a_command_and_a_stop_ends_it(tmp_path: Path) -> None:
    with Marketplace(seed=1, key="demo-key", size=1, odd_rows=False) as market:
        home = CommandHome(tmp_path, market.url, then="while :; do sleep 0.1; done")
        bargain(market)
        with home.daemon() as child:
            wait_for(lambda: home.runs)
            child.send_signal(signal.SIGHUP)
            wait_for(lambda: "still running; reload again after it has ended" in home.log())
            assert terminate(child)[0] == 0
        with home.daemon():  # on a slow machine the next daemon holds it
            wait_for(lambda: home.states() == ["held"])
            wait_for_searches(market)
        assert len(home.runs) == 1
