"""Real daemons on one database, killed by SIGKILL at every named point in turn, with a marketplace's faults.

    python -m tests.soak.kills [--kills 500] [--seed N]

Each daemon is led to its point: the launch state that it needs is prepared before it starts. The failpoint writes its
name before it kills, so that only deaths at the point count. Exit code 1 if a promise broke or a point was missed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.engine.setup import failpoint
from tests.process.audit import MOVING, Audit, Limits, launches, rows, undelivered
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for, wait_until_delivered
from tests.telegram_double import TelegramDouble, telegram

LIMITS = Limits(max_active=3, max_total=60)
PACE = "240"  # the half hour that proves absence takes eight seconds
IN_A_ROW = 9  # daemons that die on one database
WITHIN_S = 150.0  # a daemon that has not reached its point by then never does; usually it takes seconds
SETTLED_EVERY_S = 5.0  # by the owner, while it waits
ELSEWHERE = "elsewhere"
_OF_JOBS = ("series.", "move.", "prepare.")  # no job here has a schedule, moves, or prepares its data
_NAMES = sorted(point for point in failpoint.POINTS if not point.startswith(_OF_JOBS))
POINTS = [_NAMES[5 * n % len(_NAMES)] for n in range(len(_NAMES))]  # each row gets some of each kind
KEY = "demo-key"
Fault = tuple[str, str, float]
FAULTS: tuple[Fault, ...] = (
    ("create", "502_after", 0.1), ("create", "reset_after", 0.1), ("create", "unparsable_after", 0.05),
    ("create", "offer_gone", 0.05), ("search", "502", 0.05), ("search", "cut", 0.05),
    ("list", "502", 0.1), ("list", "list_lag", 0.05), ("destroy", "500_after", 0.2),
)  # fmt: skip
HELD = "held"
# From its second failure on a watch waits: a fault that leads to one comes last, and not repeatedly.
FAILURES = (
    "intent.after_commit", "launch.before_look", "launch.before_send", "failed.before_record", "failed.after_record",
)  # fmt: skip
# Faults that lead a launch to rare states; they replace the faults above if those prevent it.
LEADS: Mapping[str, Fault] = {
    "launch.no_answer": ("create", "reset_after", 1.0), "unknown": ("create", "reset_after", 1.0),
    "failed": ("create", "offer_gone", 1.0),
}  # fmt: skip


class Kills(NamedTuple):
    """Where daemons were killed, how often, and what was wrong at the end."""

    at: Counter[str]
    faults: list[str]

    @property
    def missed(self) -> list[str]:
        """The named points at which no daemon died."""
        return [point for point in POINTS if not self.at[point]]


def kill_at_points(folder: Path, seed: int, kills: int, first: int = 0) -> Kills:
    """Kill this many daemons, each at its point and pass; let the next one finish everything; audit.

    folder: an empty folder for settings and databases.
        folder: for settings and databases; empty.
        first: index of the first point in `POINTS`: runs with other seeds continue where this one ends.
    """
    points = sorted((POINTS[n % len(POINTS)] for n in range(first, first + kills)), key=_failures_last)
    found = _killed_in_a_row(folder, seed, [point for point in points if not point.startswith(HELD)])
    for n, point in enumerate(point for point in points if point.startswith(HELD)):
        one = _killed_while_it_asks(folder / f"{HELD}-{n}", seed + n, point)
        found = Kills(found.at + one.at, found.faults + one.faults)
    return found


def kill_everywhere(folder: Path, seed: int, kills: int, side_by_side: int) -> Kills:
    """Kill this many daemons in total, in series with their own seeds; most of the time each daemon waits."""
    firsts = range(0, kills, IN_A_ROW)
    folders = [folder / str(first) for first in firsts]
    for own in folders:
        own.mkdir()
    shares = [min(IN_A_ROW, kills - first) for first in firsts]
    with ThreadPoolExecutor(side_by_side) as pool:
        found = list(pool.map(kill_at_points, folders, range(seed, seed + len(shares)), shares, firsts))
    return Kills(sum((one.at for one in found), Counter()), [text for one in found for text in one.faults])


def _killed_in_a_row(folder: Path, seed: int, points: list[str]) -> Kills:
    """One database and one marketplace, and many daemons that die."""
    rng, at = random.Random(seed), Counter[str]()
    with Marketplace(seed=seed, key=KEY, size=20, delays=Delays(running_s=0.3)) as market, telegram() as double:
        home = Home(
            folder, market.url, extra=notify_by(double), max_runtime="8m", ready_within="6h", **LIMITS._asdict()
        )
        for point in points:
            for n in range(3):
                bargain(market, 1.4 + n / 50)
            _lead(market, point)
            at[_killed(home, market, point, 1 if point in FAILURES else rng.choice((1, 1, 2)))] += 1
        market.faults.clear()
        return Kills(at, _life(home) + _wrong(market, home, double))


def _killed_while_it_asks(folder: Path, seed: int, point: str) -> Kills:
    """An otherwise empty account without a balance proves no absence: the launch is held."""
    folder.mkdir()
    with Marketplace(seed=seed, key=KEY, size=0, delays=Delays(running_s=0.3)) as market, telegram() as double:
        bargain(market)
        market.faults.add("user", "500", times=None, skip=3)  # it reports the account at first
        home = Home(folder, market.url, extra=notify_by(double), **LIMITS._asdict())
        at = Counter(_killed(home, market, each) for each in ("launch.before_send", point))
        with home.daemon(GPUWATCH_TEST_PACE=PACE) as child:
            try:
                wait_for(lambda: [row["state"] for row in launches(home.database_url)] == [HELD])
                wait_until_delivered(home.database_url)
            except AssertionError:
                return Kills(at, [f"not held: {_states(home)}"])
            code, _ = terminate(child)
        return Kills(at, ([] if code == 0 else [f"ended with code {code}"]) + _wrong(market, home, double))


def _failures_last(point: str) -> int:
    return FAILURES.index(point) if point in FAILURES else -1


def _lead(market: Marketplace, point: str) -> None:
    """Set the marketplace's faults of the next life, and what leads it to its point."""
    market.faults.clear()
    lead = LEADS.get(point) or LEADS.get(point.partition(".")[0])
    for endpoint, kind, probability in (*([lead] if lead else []), *FAULTS):
        market.faults.add(endpoint, kind, times=None, probability=probability)


def _settle(home: Home, market: Marketplace) -> None:
    """Act as the owner on held launches, and on a watch that was paused after failures."""
    if "watching" not in home.log():
        return
    labels = {entry.label: entry.instance_id for entry in market.ledger.creates}
    if rows(home.database_url, "SELECT scope FROM pause"):
        home.run("resume", "cheap")
    for row in launches(home.database_url):
        if row["state"] == HELD:
            instance_id = labels.get(row["label"])
            is_there = instance_id in market.ledger.alive()
            how = ("--adopt", str(instance_id)) if is_there else ("--absent",)
            home.run("launches", "resolve", row["launch_id"], *how)


def _killed(home: Home, market: Marketplace, point: str, passes: int = 1) -> str:
    """Return where the daemon died: at its point, or elsewhere."""
    before = home.log().count(f"failpoint {point}\n")
    with home.daemon(GPUWATCH_TEST_PACE=PACE, GPUWATCH_FAILPOINT=f"{point}:{passes}@kill") as child:
        for _ in range(int(WITHIN_S / SETTLED_EVERY_S)):
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=SETTLED_EVERY_S)
                break
            _settle(home, market)
    return point if home.log().count(f"failpoint {point}\n") > before else ELSEWHERE


def _life(home: Home) -> list[str]:
    """Let the last daemon finish everything."""
    with home.daemon(GPUWATCH_TEST_PACE=PACE) as child:
        starts = home.log().count("watching")
        try:
            wait_for(lambda: home.log().count("watching") >= starts)
            before = _moving(home)
            wait_for(lambda: not before & _moving(home), every_s=0.3)
            wait_until_delivered(home.database_url)
        except AssertionError:
            return [f"does not come to rest: {_states(home)}, {len(undelivered(home.database_url))} alerts wait"]
        code, _ = terminate(child)
    return [] if code == 0 else [f"ended with code {code}"]


def _wrong(market: Marketplace, home: Home, double: TelegramDouble) -> list[str]:
    found = Audit(market, home.database_url, {"cheap": LIMITS}, double).faults()
    return found + (["a traceback in the log"] if "Traceback" in home.log() else [])


def _states(home: Home) -> dict[str, int]:
    return dict(Counter(str(row["state"]) for row in launches(home.database_url)))


def _moving(home: Home) -> set[str]:
    """Return the launches in progress. Running ones are ended by `max_runtime`, and others follow repeatedly."""
    return {row["launch_id"] for row in launches(home.database_url) if row["state"] in MOVING}


def main() -> int:
    """Kill, print the table point × kills, and judge."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.kills", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--kills", type=int, default=500)
    options.add_argument("--seed", type=int, default=20261122)
    options.add_argument("--side-by-side", type=int, default=5)
    wanted = options.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = kill_everywhere(Path(folder), wanted.seed, wanted.kills, wanted.side_by_side)
    show(found)
    print(f"seed {wanted.seed}, {time.monotonic() - began:.0f} s")
    return 1 if found.faults or found.missed else 0


def show(found: Kills) -> None:
    """Return one line per point, and what is wrong."""
    for point in sorted(POINTS):
        print(f"{point:<32}{found.at[point]:>5}{'' if found.at[point] else '   NEVER HIT'}")
    print(f"{'killed at a named point':<32}{sum(found.at[point] for point in POINTS):>5}")
    print(f"{'killed elsewhere':<32}{found.at[ELSEWHERE]:>5}")
    print(f"{'promises broken':<32}{len(found.faults):>5}")
    for text in found.faults:
        print(f"BROKEN: {text}")


if __name__ == "__main__":
    sys.exit(main())
