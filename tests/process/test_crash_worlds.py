"""Daemons that die at a named point, and a world that changes before the next start, or lies from then on.

A case is one point in one world: the real daemon dies there by SIGKILL, the world changes, another daemon runs until
everything is over. 0 doubles, 0 unreported orphans, 0 instances past their end, 0 lost alerts, never two at once.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import sqlite3
import subprocess
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.black_hole import BlackHole, black_hole
from tests.conftest import Postgres
from tests.process.audit import LABEL, Audit, Limits, launches, undelivered
from tests.process.crash_matrix import REPEATED, somebody_rents
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for, wait_for_searches
from tests.process.fork_server import ForkedProcess
from tests.telegram_double import TelegramDouble, telegram

pytestmark = pytest.mark.slow

KEY = "demo-key"
OTHER_KEY = "another-key"
FAST = {"GPUWATCH_TEST_PACE": "60"}  # ten minutes of running pass in ten seconds
TO_PROVE = {"GPUWATCH_TEST_PACE": "240"}
ALONE = {"GPUWATCH_TEST_KEEPER_AFTER": "1"}  # if only the keeper ends it, by the wall clock
BY_WALL_CLOCK = {"max_runtime": "5s", "ready_within": "8s"}
OUTLIVED = "its instance outlived its end"
OVER = {"ended", "failed"}
wait = partial(wait_for, within_s=600.0)  # a dozen cases run side by side


class Stage:
    """An account with a gpuwatch, whose owner has a chat."""

    def __init__(self, folder: Path, market: Marketplace, chat: TelegramDouble, **settings: Any) -> None:
        self.folder, self.market, self.chat = folder, market, chat
        self.settings: dict[str, Any] = {
            "url": market.url, "extra": notify_by(chat), "max_runtime": "10m", "ready_within": "6h",
            "repeat_every": REPEATED,
        } | settings  # fmt: skip
        self.home = Home(folder, **self.settings)

    def dies_at(self, point: str, **env: str) -> None:
        with self.home.daemon(GPUWATCH_FAILPOINT=f"{point}@kill", **(env or FAST)) as child:
            assert child.wait(timeout=240) == -signal.SIGKILL
        assert f"failpoint {point.partition(':')[0]}\n" in self.home.log()

    @contextmanager
    def lives(self, **env: str) -> Iterator[ForkedProcess]:
        starts = self.home.log().count('"watching"')
        with self.home.daemon(**(env or FAST)) as child:
            wait(lambda: self.home.log().count('"watching"') > starts)
            yield child
            assert terminate(child)[0] == 0

    def ends(self, **env: str) -> None:
        """Let the last daemon finish everything."""
        with self.lives(**FAST | env):
            wait(lambda: not ours(self.market) and set(self.home.states()) <= OVER)
            wait(lambda: not undelivered(self.home.database_url))

    def is_reported(self, text: str) -> bool:
        return any(text in message.text for message in self.chat.shown)

    def faults(self) -> list[str]:
        found = Audit(self.market, self.home.database_url, {"cheap": Limits(1, 0)}, self.chat).faults()
        if (most := at_once(self.market)) > 1:
            found.append(f"{most} instances at once")
        return found + [f"instance {one} outlived its end" for one in ours(self.market)]


def ours(market: Marketplace) -> list[int]:
    """Return the active instances that gpuwatch rented, whatever their labels are now."""
    rented = {create.instance_id for create in market.ledger.creates if (create.label or "").startswith(LABEL)}
    return [one for one in market.ledger.alive() if one in rented]


def at_once(market: Marketplace) -> int:
    alive, most = set(), 0
    for entry in market.ledger.entries:
        if entry.kind == "create" and (entry.label or "").startswith(LABEL):
            alive.add(entry.instance_id)
        elif entry.kind in {"destroy", "expired"}:
            alive.discard(entry.instance_id)
        most = max(most, len(alive))
    return most


def edit_label(market: Marketplace, instance_id: int) -> None:
    """Edit the label, like an owner in the console."""
    request = urllib.request.Request(
        f"{market.url}/api/v0/instances/{instance_id}/", json.dumps({"label": "my training"}).encode(), method="PUT",
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=240) as answered:
        assert json.load(answered)["success"]


# --- the worlds -------------------------------------------------------------------------------------------------------


def key_changed(stage: Stage, point: str) -> None:
    """The next daemon has the key of another account, whose lists are never empty."""
    stage.dies_at(point)
    with Marketplace(seed=2, key=OTHER_KEY, account_id=999, size=0) as second:
        somebody_rents(second, OTHER_KEY)
        bargain(second)
        before = stage.home.states()
        stage.home.write(**stage.settings | {"url": second.url, "key": OTHER_KEY})
        with stage.lives():
            wait_for_searches(second, 10)
            wait(lambda: stage.is_reported("no longer reach it"))
        assert (stage.home.states(), ours(second)) == (before, [])
        assert len(ours(stage.market)) == 1
        stage.home.write(**stage.settings)
        stage.ends()


def watch_renamed(stage: Stage, point: str) -> None:
    stage.dies_at(point)
    path = stage.folder / "gpuwatch.toml"
    path.write_text(path.read_text().replace('name = "cheap"\n', 'name = "cheap-h100"\n'))
    with stage.lives():
        wait(lambda: stage.is_reported("is not in the settings"))
        wait(lambda: OVER & set(stage.home.states()))
    path.write_text(path.read_text().replace("gpu = [", 'renamed_from = "cheap"\ngpu = ['))
    stage.ends()


def backup_restored(stage: Stage, point: str) -> None:
    """Restore the database from before the order; the keeper's file stays."""
    loses_the_launch(stage, point)
    with stage.lives(**ALONE):
        wait(lambda: stage.is_reported("that are not in this database") or not ours(stage.market))
    stage.market.faults.add("search", "502", times=None)  # a watch that forgot it could rent again
    stage.ends(**ALONE)


def backup_and_another_key(stage: Stage, point: str) -> None:
    """The new account's lists lack what the old one pays for; the keeper's file names it."""
    loses_the_launch(stage, point)
    with Marketplace(seed=2, key=OTHER_KEY, account_id=999, size=0) as second:
        somebody_rents(second, OTHER_KEY)
        bargain(second)
        stage.home.write(**stage.settings | {"url": second.url, "key": OTHER_KEY})
        with stage.lives(**ALONE):
            wait_for_searches(second, 10)
            wait(lambda: stage.is_reported("names launch"))
        assert ours(second) == []
        assert len(ours(stage.market)) == 1
        stage.home.write(**stage.settings)
        stage.market.faults.add("search", "502", times=None)
        stage.ends(**ALONE)


def loses_the_launch(stage: Stage, point: str) -> None:
    database = stage.folder / "gpuwatch.db"
    stage.market.faults.add("search", "502", times=None)
    with stage.lives(**ALONE):
        pass
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(stage.folder / "backup")) as backup:
        source.backup(backup)
    stage.market.faults.clear()
    stage.dies_at(point, **ALONE)
    for name in ("gpuwatch.db-wal", "gpuwatch.db-shm"):
        (stage.folder / name).unlink(missing_ok=True)
    shutil.copyfile(stage.folder / "backup", database)


def second_installation(stage: Stage, point: str) -> None:
    """Another gpuwatch starts on the account, and dies because of what it finds."""
    stage.dies_at(point)
    folder = stage.folder / "other"
    folder.mkdir()
    other = Stage(folder, stage.market, stage.chat)
    other.dies_at("alert.sent")
    with other.lives():
        wait_for_searches(stage.market, 10)
    assert other.home.states() == []
    assert len(ours(stage.market)) == 1
    stage.ends()


def list_omits(stage: Stage, point: str) -> None:
    """A lookup finds it, no list shows it."""
    stage.dies_at(point)
    stage.market.faults.add("list", "list_omits", times=None, seconds=1e6)
    with stage.lives():
        wait_for_searches(stage.market, 10)
        wait(lambda: not OVER & set(stage.home.states()) or not ours(stage.market))
    stage.market.faults.clear()
    stage.ends()


def denied_and_back(stage: Stage, point: str) -> None:
    """Destroyed at its end: 404, and neither lists nor lookups find it. Then it reappears."""
    stage.dies_at("running.after_record")
    for endpoint, kind in (("destroy", "404"), ("list", "list_empty"), ("instance", "instance_null")):
        stage.market.faults.add(endpoint, kind, times=None)
    stage.dies_at(point)
    with stage.lives():
        wait(lambda: stage.home.states() == ["ended"])
        assert len(ours(stage.market)) == 1
    stage.market.faults.clear()
    with stage.lives():
        wait(lambda: not ours(stage.market))
    stage.ends()


def label_edited(stage: Stage, point: str) -> None:
    stage.dies_at(point, **TO_PROVE)
    [instance_id] = ours(stage.market)
    edit_label(stage.market, instance_id)
    with stage.lives(**TO_PROVE):
        wait(lambda: set(stage.home.states()) & {"held", *OVER})
        if "held" in stage.home.states():
            wait(lambda: stage.is_reported(str(instance_id)))
            launch_id = launches(stage.home.database_url)[0]["launch_id"]
            assert stage.home.run("launches", "resolve", launch_id, "--adopt", str(instance_id)).returncode == 0
    stage.ends(**TO_PROVE)


def task_hung(stage: Stage, point: str) -> None:
    """The keeper ends it; then the service manager kills the daemon, whose watchdog is not fed."""
    with stage.home.daemon(GPUWATCH_FAILPOINT=f"{point}@sleep600", **ALONE) as child:
        wait(lambda: f"failpoint {point.partition(':')[0]}\n" in stage.home.log())
        wait(lambda: stage.market.ledger.creates and not ours(stage.market))
        child.kill()
    stage.ends()


def task_raising(stage: Stage, point: str) -> None:
    with stage.home.daemon(GPUWATCH_FAILPOINT=f"{point}@raise1000", **ALONE) as child:
        wait(lambda: stage.market.ledger.creates and not ours(stage.market))
        child.kill()
    stage.ends()


def database_silent(stage: Stage, point: str, hole: BlackHole) -> None:
    """The next daemon finds a database that accepts connections and never answers; a later one finds it working."""
    stage.dies_at(point, **ALONE)
    hole.swallows.set()
    with stage.home.daemon(**ALONE) as child:
        wait(lambda: not ours(stage.market))
        wait(lambda: stage.is_reported(OUTLIVED))
        code, took_s = terminate(child)
    assert code == 0
    assert took_s <= 12  # ten seconds, plus the delay of a busy machine
    hole.swallows.clear()
    stage.ends()


Settings = dict[str, str]
World = Callable[[Stage, str], None]
WORLDS: Sequence[tuple[World, tuple[str, ...], Settings]] = (
    (key_changed, ("launch.after_send", "running.after_record"), {}),
    (watch_renamed, ("launch.after_send", "stopping.after_record"), {}),
    (backup_restored, ("launch.after_record", "running.after_record"), BY_WALL_CLOCK),
    (backup_and_another_key, ("running.after_record",), BY_WALL_CLOCK),
    (second_installation, ("launch.after_send", "running.after_record"), {}),
    (list_omits, ("launch.after_send", "running.after_record", "stopping.after_record"), {}),
    (denied_and_back, ("ended.after_record",), {}),
    (label_edited, ("launch.after_send", "running.after_record"), {"max_runtime": "40m"}),
    (task_hung, ("reconcile.listed:3", "launch.before_destroy", "alert.leased"), BY_WALL_CLOCK),
    (task_raising, ("reconcile.listed:3", "stopping.before_record"), BY_WALL_CLOCK),
)
SILENT = ("launch.after_record", "running.after_record")
SEED = 20261128
AT_ONCE = 12  # cases; most of the time each waits


class Case(NamedTuple):
    """One death in one world."""

    name: str
    happens: Callable[[Stage], None]
    settings: Settings

    def faults(self, folder: Path) -> list[str]:
        """Run it, and audit."""
        folder.mkdir()
        with Marketplace(seed=5, key=KEY, size=0, delays=Delays(running_s=0.3)) as market, telegram() as chat:
            for n in range(3):
                bargain(market, 1.5 + n / 10)
            stage = Stage(folder, market, chat, **self.settings)
            try:
                self.happens(stage)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                states = stage.home.states()
                return [f"{type(error).__name__}: {error}; {states}", *traceback.format_tb(error.__traceback__)[-3:]]
            return stage.faults()


def test_whatever_changes_after_a_death_nothing_is_lost_from_sight(
    postgres: Postgres, tmp_path: Path, whole: bool
) -> None:
    """Every world, after a death at one of its points; with `--whole` at each."""
    chosen = random.Random(SEED)

    def of(points: Sequence[str]) -> Sequence[str]:
        return points if whole else [chosen.choice(points)]

    cases = [
        Case(f"{world.__name__}, {point}", partial(world, point=point), settings)
        for world, points, settings in WORLDS
        for point in of(points)
    ]
    with ExitStack() as stack:
        for point in of(SILENT):
            url = postgres.upgraded()
            stack.callback(postgres.drop, url)
            hole, through = black_hole(url)
            stack.callback(hole.close)
            happens = partial(database_silent, point=point, hole=hole)
            cases.append(Case(f"database_silent, {point}", happens, BY_WALL_CLOCK | {"database_url": through}))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(Case.faults, cases, (tmp_path / str(n) for n in range(len(cases)))))
    wrong = {case.name: faults for case, faults in zip(cases, found, strict=True) if faults}
    assert wrong == {}, json.dumps(wrong, indent=1)
