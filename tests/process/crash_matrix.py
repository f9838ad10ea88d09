"""The crash matrix: the real daemon dies at every named point of launch, end and alert, with each of the marketplace's
faults; the next daemon takes over. 0 double, 0 orphan, 0 lost alert (docs/faults.md, K01–K12).

A case is a series of deaths, one per daemon, then a daemon that survives. Every death is asserted to happen at its
point: a point that is never passed proves nothing. `make test` runs a sample, `make soak` all.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.engine.setup import failpoint
from tests.process.audit import MOVING, Audit, Limits, leaks, undelivered
from tests.process.daemon_child import Home, bargain, notify_by, wait_for, wait_for_searches, wait_until_delivered
from tests.telegram_double import TOKEN, telegram

KEY = "vast-key-of-the-matrix-51d0"
PACE = "60"  # a minute per second, for a launch's waiting times
TO_PROVE = "240"  # if nothing was sent: the half hour that proves absence takes eight seconds
NOT_SENT = {"intent.after_commit", "launch.before_look", "launch.before_send"}
REPEATED = "2s"  # with a picture each: every second, they take half of a daemon's processor time
SEARCHES = 6  # take longer than that: the watch has fired once more when its launch was at rest
AT_ONCE = 8  # cases of one test; most of the time each waits
SENT = "the order was sent"  # killed from outside, as soon as the marketplace has it
Fault = tuple[str, str, dict[str, Any]]


class Column(NamedTuple):
    """The behaviour of the marketplace.

    `answered`: gpuwatch reads an answer to its create. `starts`: created instances start to run.
    """

    faults: tuple[Fault, ...]
    answered: bool = True
    starts: bool = True


RENTING: Mapping[str, Column] = {
    "fine": Column(()),
    "answer lost": Column((("create", "reset_after", {}),), answered=False),
    "answer late": Column((("create", "slow", {"delay_s": 1.5}),)),
    "arrives late": Column((("create", "late", {"hold_s": 0.3, "after_s": 1.5}),), answered=False),
    "5xx after success": Column((("create", "502_after", {}),), answered=False),
    "success false, with a contract": Column((("create", "bid_lost", {}),), starts=False),
    "the list lags": Column((("list", "list_lag", {"seconds": 4.0, "times": None}),)),
}
ENDING: Mapping[str, Column] = {
    "fine": Column(()),
    "answer lost": Column((("destroy", "reset_after", {}),)),
    "answer late": Column((("destroy", "slow", {"delay_s": 1.5}),)),
    "5xx after success": Column((("destroy", "500_after", {}),)),
    "5xx, not done": Column((("destroy", "500", {}),)),
    "acknowledged, not done": Column((("destroy", "undead", {}),)),
    "the list lags": Column((("list", "list_lag", {"seconds": 4.0, "times": None}),)),
}


def renting_deaths(column: Column) -> Iterator[tuple[str, ...]]:
    """Where daemons die, one after another, between the offer and the running instance."""
    yield ("intent.before_commit",)
    yield ("intent.after_commit",)
    yield ("launch.before_look",)
    yield ("launch.before_send",)
    yield (SENT,)
    for point in ("alert.leased", "alert.sent", "alert.marked", "running.before_record", "running.after_record"):
        if column.starts or not point.startswith("running"):
            yield (point,)
    if column.answered:
        answered = "launch.after_send"
        yield ("launch.after_record",)
        if column.starts:
            yield ("starting.before_record",)
            yield ("starting.after_record",)
    else:
        answered = "launch.no_answer"
        yield ("unknown.before_record",)
        yield ("unknown.after_record",)
    yield (answered,)
    # the next daemon finds the instance by its label, and dies at that point
    yield (answered, "reconcile.listed")
    yield (answered, "starting.before_record")
    yield (answered, "starting.after_record")
    # nothing was sent: the next daemon proves that, and dies at that point
    yield ("launch.before_send", "failed.before_record")
    yield ("launch.before_send", "failed.after_record")


ENDING_DEATHS: Sequence[tuple[str, ...]] = (
    ("stopping.before_record",),
    ("stopping.after_record",),
    ("launch.before_destroy",),
    ("launch.after_destroy",),
    ("launch.before_destroy", "launch.after_destroy", "reconcile.listed"),
    ("ended.before_record",),
    ("ended.after_record",),
    ("alert.sent:3",),  # rented, running, then: it is being ended
)
RENT_NOW_DEATHS: Mapping[str, Sequence[str]] = {  # of the command `gpuwatch rent`, between its quote and the answer
    "fine": ("intent.after_commit", "launch.before_look", "launch.before_send", "launch.after_send"),
    "answer lost": ("launch.no_answer",),
    "arrives late": ("launch.no_answer",),
    "5xx after success": ("unknown.before_record", "unknown.after_record"),
    "the list lags": ("launch.after_record",),
}
HOLDING_DEATHS: Sequence[tuple[str, ...]] = (
    ("launch.before_send", "held.before_record"),
    ("launch.before_send", "held.after_record"),
)


# --- one case -----------------------------------------------------------------------------------------------------


class Case:
    """One cell of the matrix."""

    limits: Mapping[str, Limits] = MappingProxyType({"cheap": Limits(1, 1)})

    def __init__(
        self, name: str, deaths: tuple[str, ...], column: Column, *,
        max_runtime: str = "48h", rests: str = "running", canary: bool = True,
    ) -> None:  # fmt: skip
        self.name = " → ".join((name, *deaths))
        self.deaths = deaths
        self.column = column
        self.max_runtime = max_runtime
        self.rests = rests
        self.canary = canary
        self.pace = TO_PROVE if NOT_SENT & set(deaths) else PACE
        self.covers = {name, *(point.partition(":")[0] for point in deaths)}

    def faults(self, folder: Path, template: Path) -> list[str]:
        """Run it, and audit."""
        folder.mkdir()
        shutil.copyfile(template, folder / "gpuwatch.db")
        delays = Delays(running_s=0.3)
        with Marketplace(seed=5, key=KEY, size=0, delays=delays) as market, telegram() as double:
            for n in range(4):
                bargain(market, 1.5 + n / 10)
            if self.canary:
                somebody_rents(market, KEY)
            for endpoint, kind, settings in self.column.faults:
                market.faults.add(endpoint, kind, **settings)
            home = Home(
                folder, market.url, key=KEY, extra=notify_by(double),
                max_runtime=self.max_runtime, ready_within="6h" if self.column.starts else "20m",
                repeat_every=REPEATED, **self._settings(),
            )  # fmt: skip
            found = self._deaths(home, market) or self._life(home, market)
            found += Audit(market, home.database_url, self.limits, double).faults()
            found += leaks([KEY, TOKEN], folder, *(message.text for message in double.shown))
            return found + (["a traceback in the log"] if "Traceback" in home.log() else [])

    def _settings(self) -> dict[str, str]:
        return {}

    def _deaths(self, home: Home, market: Marketplace) -> list[str]:
        for point in self.deaths:
            child = home.start(GPUWATCH_TEST_PACE=self.pace, **({} if point is SENT else {"GPUWATCH_FAILPOINT": point}))
            try:
                if point is SENT:
                    wait_for(lambda: _creates(market) > int(self.canary), every_s=0.01)
                    child.kill()
                    child.wait()
                elif child.wait(timeout=240) != failpoint.DIED:
                    return [f"did not die at {point}: code {child.returncode}"]
            except (subprocess.TimeoutExpired, AssertionError):
                return [f"never came to {point}; launches: {home.states()}"]
            finally:
                if child.poll() is None:
                    child.kill()
                child.wait()
        return []

    def _life(self, home: Home, market: Marketplace) -> list[str]:
        with home.daemon(GPUWATCH_TEST_PACE=self.pace) as child:
            try:
                wait_for(lambda: self._at_rest(home.states()), every_s=0.2)
                wait_for_searches(market, SEARCHES)
                wait_until_delivered(home.database_url)
                assert self._at_rest(home.states())
            except AssertionError:
                return [f"does not come to rest: {home.states()}, {len(undelivered(home.database_url))} alerts wait"]
            child.send_signal(signal.SIGTERM)
            code = child.wait(timeout=240)
        return [] if code == 0 else [f"ended with code {code}"]

    def _at_rest(self, states: Sequence[str]) -> bool:
        """The correct final state; a watch that rests after a second failure within an hour is also correct."""
        return (self.rests in states or states.count("failed") > 1) and MOVING.isdisjoint(states)


class RentNowCase(Case):
    """The command `gpuwatch rent` dies; the person presses again; then a daemon finds what it left."""

    limits = MappingProxyType({"rent:now": Limits(1, 1)})

    def __init__(self, name: str, point: str, column: Column) -> None:
        super().__init__(f"renting now, {name}", (point,), column, rests="failed" if point in NOT_SENT else "running")
        self.covers = {"renting now", point}
        if point not in NOT_SENT:
            self.pace = "10"  # it must run within the default of a quarter of an hour

    def _settings(self) -> dict[str, str]:
        return {"action": "alert"}

    def _deaths(self, home: Home, market: Marketplace) -> list[str]:
        offer = str(bargain(market, 3.0))
        command = ("rent", offer, "--provider", "vastai", "--for", self.max_runtime, "--yes")
        (point,) = self.deaths
        died = home.run(*command, GPUWATCH_TEST_PACE=self.pace, GPUWATCH_FAILPOINT=point)
        if died.returncode != failpoint.DIED:
            return [f"did not die at {point}: code {died.returncode}, {died.stderr}"]
        again = home.run(*command, GPUWATCH_TEST_PACE=self.pace)
        return [] if again.returncode == 1 else [f"pressed again: code {again.returncode}, {again.stderr}"]


def all_cases() -> list[Case]:
    """The whole matrix."""
    cases = [Case(f"renting, {name}", deaths, column) for name, column in RENTING.items()
             for deaths in renting_deaths(column)]  # fmt: skip
    cases += [Case(f"ending, {name}", deaths, column, max_runtime="4m", rests="ended")
              for name, column in ENDING.items() for deaths in ENDING_DEATHS]  # fmt: skip
    cases += [RentNowCase(name, point, RENTING[name])
              for name, points in RENT_NOW_DEATHS.items() for point in points]  # fmt: skip
    # an otherwise empty account without a balance proves no absence: nothing is sent again
    silent = Column((("user", "500", {"times": None, "skip": 3}),))  # it reports the account at first
    return cases + [Case("held", deaths, silent, rests="held", canary=False) for deaths in HOLDING_DEATHS]


def sample(seed: int) -> list[Case]:
    """Cases that die at every point at least once, and meet every behaviour of the marketplace in each phase."""
    left = all_cases()
    random.Random(seed).shuffle(left)
    missing = set().union(*(case.covers for case in left))
    chosen = []
    while missing:
        best = max(left, key=lambda case: len(case.covers & missing))
        chosen.append(best)
        missing -= best.covers
    return chosen


def play(cases: Sequence[Case], folder: Path, template: Path) -> dict[str, list[str]]:
    """Run cases side by side.

    Args:
        template: an upgraded database to copy: a start without migrations takes half as long.

    Returns:
        what is wrong, by case.
    """
    longest_first = sorted(cases, key=lambda case: -len(case.deaths))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        folders = (folder / str(n) for n in range(len(cases)))
        found = list(pool.map(lambda case, own: case.faults(own, template), longest_first, folders))
    return {case.name: faults for case, faults in zip(longest_first, found, strict=True) if faults}


def _creates(market: Marketplace) -> int:
    return sum(seen.method == "PUT" and seen.path.startswith("/api/v0/asks/") for seen in market.requests)


def somebody_rents(market: Marketplace, key: str) -> None:
    """Another instance on the account, which makes complete lists credible."""
    offer_id = market.publish(gpu="RTX 4090", count=1, usd_hour=0.4)
    order = {"image": "somebody/else", "disk": 10, "label": "somebody"}
    request = urllib.request.Request(
        f"{market.url}/api/v0/asks/{offer_id}/", json.dumps(order).encode(), method="PUT",
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=240) as answered:
        assert json.load(answered)["success"]
