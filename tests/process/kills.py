"""SIGKILL, over and over, at every named point in turn, under a marketplace's faults; then a daemon that lives."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.engine import failpoint
from tests.process.audit import MOVING, Audit, Limits, launches, undelivered
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for, wait_until_delivered
from tests.telegram_double import telegram

MAX_ACTIVE, MAX_TOTAL = 2, 60
PACE = "60"  # a minute a second
LIVES_S = 5.0  # so long a daemon has to come to its point; then it is killed where it is
ELSEWHERE = "elsewhere"
POINTS = sorted(failpoint.POINTS)
KEY = "demo-key"
FAULTS = (
    ("create", "502_after", 0.1), ("create", "reset_after", 0.1), ("create", "unparsable_after", 0.05),
    ("create", "offer_gone", 0.05), ("search", "502", 0.05), ("search", "cut", 0.05),
    ("list", "502", 0.1), ("list", "list_lag", 0.05), ("destroy", "500_after", 0.2),
)  # fmt: skip


class Kills(NamedTuple):
    """Where daemons were killed, how often, and what was wrong in the end."""

    at: Counter[str]
    faults: list[str]


def kill_at_points(folder: Path, seed: int, kills: int, first: int = 0) -> Kills:
    """Kill so many daemons, each at its point and pass; let the next one bring all to rest; audit.

    Args:
        folder: for settings and database; empty.
        first: the place of the first point in `POINTS`: runs with other seeds go on where this one ends.
    """
    rng, at = random.Random(seed), Counter[str]()
    with Marketplace(seed=seed, key=KEY, size=20, delays=Delays(running_s=0.3)) as market, telegram() as double:
        for n in range(16):
            bargain(market, 1.4 + n / 50)
        for endpoint, kind, probability in FAULTS:
            market.faults.add(endpoint, kind, times=None, probability=probability)
        home = Home(
            folder, market.url, max_active=MAX_ACTIVE, max_total=MAX_TOTAL, max_runtime="2m", extra=notify_by(double)
        )
        for n in range(first, first + kills):
            point = POINTS[n % len(POINTS)]
            child = home.start(GPUWATCH_TEST_PACE=PACE, GPUWATCH_FAILPOINT=f"{point}:{rng.choice((1, 1, 2))}@kill")
            try:
                child.wait(timeout=LIVES_S)
                at[point] += 1
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                at[ELSEWHERE] += 1
        market.faults.clear()
        faults = _life(home)
        faults += Audit(market, home.database_url, {"cheap": Limits(MAX_ACTIVE, MAX_TOTAL)}, double).faults()
        return Kills(at, faults + (["a traceback in the log"] if "Traceback" in home.log() else []))


def _life(home: Home) -> list[str]:
    """The daemon after them brings everything to rest."""
    with home.daemon(GPUWATCH_TEST_PACE=PACE) as child:
        starts = home.log().count("watching")
        try:
            wait_for(lambda: home.log().count("watching") >= starts)
            before = _moving(home)
            wait_for(lambda: not before & _moving(home), within_s=300, every_s=0.3)
            wait_until_delivered(home.database_url)
        except AssertionError:
            states = Counter(str(row["state"]) for row in launches(home.database_url))
            return [f"does not come to rest: {dict(states)}, {len(undelivered(home.database_url))} alerts wait"]
        code, _ = terminate(child)
    return [] if code == 0 else [f"ended with code {code}"]


def _moving(home: Home) -> set[str]:
    """The launches on their way. What runs is ended by its `max_runtime` and followed by others, again and again."""
    return {row["launch_id"] for row in launches(home.database_url) if row["state"] in MOVING}
