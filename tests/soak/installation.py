"""One gpuwatch: its settings, its database, and the daemon's own tasks, run directly on a virtual clock."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import func, select

from gpuwatch import settings as settings_of
from gpuwatch.bootstrap import TimeSource, open_http
from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon import process
from gpuwatch.daemon.tasks import periodic_tasks
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.errors import DeliverLater, GpuwatchError, SettingsError
from gpuwatch.ports import Alert
from gpuwatch.settings import Settings
from gpuwatch.storage.setup.daemon_lease import release_leases
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.migrate import upgrade
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver
from gpuwatch.storage.setup.tables import launch as launches
from tests.soak.cloud import NAME, Cloud, Died, launch_id_in

if TYPE_CHECKING:
    from gpuwatch.engine.launches.guarding.keeper import Keeper


try:
    from gpuwatch.bootstrap.service import apply_watch_changes
    from tests.soak.keeper import build_keeper
except ImportError:  # an older package without a keeper, in which a watch was identified by its name
    build_keeper = None  # type: ignore[assignment]

    def apply_watch_changes(settings: Settings, store: Database, now: datetime) -> None:
        """Only the names of watches are known."""


MAX_RUNTIME_S = 7200.0
WATCHES = {  # by the GPU that only it rents: its launches are known without its name
    "H100 SXM": ("one", 1, ""),
    "A100 SXM 80GB": ("two", 2, ""),
    "L40S": ("again", 1, "relaunch = true\n"),
    "RTX 4090": ("bid", 1, "relaunch = true\nbid = { max = 3.5 }\n"),
}
MAX_USD_HOUR, MAX_INSTANCES = 13.0, 4
SPOTS = ("L40S", "RTX 4090")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Return an owner's settings."""

    key: str = "main.1"
    renamed: tuple[tuple[str, str], ...] = ()  # name of `WATCHES` → current name
    renamed_from: bool = False  # … and says so


@cache
def _loaded(wanted: Wanted, folder: str) -> Settings:
    names = dict(wanted.renamed)
    watches = ""
    for gpu, (name, active, more) in WATCHES.items():
        old = f'renamed_from = "{name}"\n' if wanted.renamed_from and name in names else ""
        spot = "only" if gpu in SPOTS else "no"
        watches += (
            f'[[watch]]\nname = "{names.get(name, name)}"\n{old}gpu = "{gpu}"\nspot = "{spot}"\n'
            f'max_price = 3.6\naction = "launch"\n\n[watch.launch]\nimage = "some/image"\nmax_active = {active}\n'
            f'max_total = 0\nmax_runtime = "{MAX_RUNTIME_S:.0f}s"\nready_within = "15m"\nquote_ttl = "1m"\n{more}\n'
        )
    path = Path(folder) / "soak.toml"
    path.write_text(
        f'database_url = "sqlite:///{folder}/none.db"\ndry_run = false\n\n[providers.vastai]\nenabled = false\n\n'
        f'[providers.{NAME}]\napi_key = "{wanted.key}"\nrows_per_day = 0\n\n'
        f"[budget]\nmax_usd_hour = {MAX_USD_HOUR}\nmax_instances = {MAX_INSTANCES}\n\n{watches}"
    )
    return settings_of.load(str(path), env={"HOME": folder})


class Post:
    """The owner's channel: accepts most alerts, sometimes fails."""

    name = "post"

    def __init__(self, fails: Callable[[], bool]) -> None:
        self.taken: set[str] = set()
        self._fails = fails

    def send(self, alert: Alert) -> None:
        if self._fails():
            raise DeliverLater("post: closed")
        self.taken.add(alert.alert_id)


class Installation:
    """A daemon that is started, killed, reloaded and restored; `begin` starts it."""

    def __init__(
        self, name: str, folder: Path, template: bytes, cloud: Cloud, clock: Callable[[], datetime], post: Post
    ) -> None:
        self.name, self.folder = name, folder
        folder.mkdir()
        self.database = folder / "gpuwatch.db"
        self.database.write_bytes(template)
        self.wanted = Wanted()
        self.restarts = self.died = self.raised = 0
        self.tracebacks: list[str] = []
        self.hung: set[str] = set()  # tasks that never return
        self.is_database_gone = False
        self.ids_when_lost: frozenset[str] = frozenset()  # the instances that the database named when it was lost
        self._cloud, self._clock, self._post = cloud, clock, post
        self._time = TimeSource(clock, lambda: cloud.tick_s, self._wait)
        self._http = open_http(self.settings(self.wanted))
        self._keeper: Keeper | None = None
        self._reminded_at = clock()
        self._looks = 0
        self.keeper_alerts: list[Alert] = []
        self.begin()

    def settings(self, wanted: Wanted) -> Settings:
        """Load the settings. Raises SettingsError."""
        found = _loaded(wanted, str(self.folder))
        return msgspec.structs.replace(found, database_url=f"sqlite:///{self.database}")

    # --- its life -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a new process."""
        self.store = open_database(f"sqlite:///{self.database}")
        release_leases(self.store)
        self._known = self._stored()
        self._build(self.settings(self.wanted))

    def _build(self, found: Settings) -> None:
        apply_watch_changes(found, self.store, self._clock())
        self.service = Service(found, self.store, self._http, {"post": self._post}, time_source=self._time)
        if build_keeper is not None:
            self._keeper = build_keeper(found, self._http, self._time, self.keeper_alerts, self._is_followed)
        self._tasks = {task.name.replace(f" {NAME}", ""): task.run for task in periodic_tasks(self.service)}
        self.hung = set()

    def _is_followed(self) -> bool:
        return "follow" not in self.hung and not self.is_database_gone

    def _drop(self) -> None:
        """End the process with everything in its memory; its threads have nothing to do any more."""
        self.service.stopping.set()
        self.service.executor.shutdown()
        self.service.deliverer.close(0.0)

    def kill_and_start(self) -> None:
        self.restarts += 1
        self._drop()
        if self.is_database_gone:  # else it does not start
            self.lose_database(False)
        self.store.close()
        self.begin()

    def end(self) -> None:
        self._drop()
        self.store.close()
        self._http.close()

    def reload(self, wanted: Wanted) -> bool:
        """Send SIGHUP; False: the daemon keeps its settings."""
        try:
            fresh = self.settings(wanted)
            faults = process._reload_faults(fresh, self.service)
        except SettingsError:
            return False
        if faults:
            return False
        self._drop()
        self.wanted = wanted
        self._build(fresh)
        return True

    def start_with(self, wanted: Wanted) -> bool:
        """Stop, edit the settings, start; False: such settings are invalid."""
        try:
            self.settings(wanted)
        except SettingsError:
            return False
        self.wanted = wanted
        self.kill_and_start()
        return True

    def back_up(self, target: Path) -> None:
        driver = sqlite_driver()  # the same library: closing a file of another one would drop this one's locks
        source, copy = driver.connect(self.database), driver.connect(target)
        source.backup(copy)
        copy.close()
        source.close()

    def restore(self, backup: Path) -> None:
        self.restarts += 1
        self._drop()
        self.lose_database(False)
        self.store.close()
        # another file: garbage collection of the dead process's connection would delete the new one's log
        self.database = self.folder / f"gpuwatch-{self.restarts}.db"
        shutil.copyfile(backup, self.database)
        self.begin()

    def lose_database(self, gone: bool) -> None:
        """Remove its file, or restore it; the process continues."""
        if gone == self.is_database_gone:
            return
        self.ids_when_lost = frozenset(launch.instance_id for launch in self.alive() if launch.instance_id)
        self.is_database_gone = gone
        away = self.database.with_name("away.db")
        (self.database if gone else away).rename(away if gone else self.database)

    # --- its work -----------------------------------------------------------------------------------------------------

    def hunt(self) -> int:
        """Run one round of the hunt and its rents; return how many launches were started."""
        before = set() if self.is_database_gone else self._requested()
        self._run("hunt")
        if self.is_database_gone:
            return 0
        begun = self._stored() - self._known
        self._known += begun
        until = time.monotonic() + 20.0
        while time.monotonic() < until and (self.service.slots.in_flight() or self._still_ordering(before)):
            time.sleep(0.0005)
        if self._cloud.died:
            self._revive()
        return begun

    def _still_ordering(self, before: set[str]) -> bool:
        """Wait for orders on the executor's threads; one that a death interrupted stays as it is."""
        return not self._cloud.died and bool(self._requested() - before)

    def _requested(self) -> set[str]:
        return {launch.launch_id for launch in self.alive() if launch.state is LaunchState.REQUESTED}

    def look(self) -> None:
        """Run everything else that is due."""
        self._looks += 1
        if self._keeper is not None:
            # its list for an overdue instance does not mean that anything else is followed
            self._cloud.asking = f"keeper of {self.name}"
            self._keeper.check(self._clock())
        for task in ("guard", "follow") if self._looks % 4 else ("guard", "follow", "deliver"):
            self._run(task)
        if abs(self._clock() - self._reminded_at) > timedelta(hours=1):
            self._reminded_at = self._clock()
            self._run("remind")

    def _run(self, task: str) -> None:
        if task in self.hung:
            return
        self._cloud.asking = self.name
        try:
            self._tasks[task]()
        except Died:
            self._revive()
        except GpuwatchError:
            self.raised += 1  # like the scheduler: it runs again at its next time
        except Exception:
            self.tracebacks.append(traceback.format_exc())

    def _revive(self) -> None:
        self._cloud.died = False
        self.died += 1
        self.kill_and_start()

    def _stored(self) -> int:
        with self.store.read() as connection:
            return int(connection.execute(select(func.count()).select_from(launches)).scalar_one())

    def alive(self) -> Sequence[Launch]:
        """Return active launches from its database; without it they are unknown."""
        return () if self.is_database_gone else self.service.launch_repository.alive()

    def knows(self, label: str) -> bool:
        """Whether its database has the launch."""
        return self.service.launch_repository.get(launch_id_in(label)) is not None

    def _wait(self, stop: Event, seconds: float) -> None:
        """Let time pass while a task waits: a loop around a wait must end."""
        self._cloud.pass_s(seconds)


@cache
def template() -> bytes:
    """An upgraded database."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_database(f"sqlite:///{folder}/template.db")
        upgrade(store)
        store.close()
        return (Path(folder) / "template.db").read_bytes()
