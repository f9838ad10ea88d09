"""The real daemon as a child process, against the embedded marketplace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from gpuwatch.emulator import Marketplace
from gpuwatch.storage.setup.database import sqlite_path
from tests.process.audit import launches, undelivered
from tests.process.fork_server import ForkedProcess, start_gpuwatch
from tests.telegram_double import CHAT, TOKEN, TelegramDouble
from tests.upgraded_store import empty_file

ROOT = Path(__file__).parents[2]
SHOWN_LOG = 20_000  # characters
COMMAND_S = 240  # a limit that only a command that hangs reaches, on any machine
SETTINGS = """
dry_run = {dry_run}
database_url = "{database_url}"

[budget]
max_usd_hour = 100.0

[providers.vastai]
base_url = "{url}"
api_key = "{key}"
poll_every = "1s"
search_interval = "0.05s"
sweep_every = "2s"
rows_per_day = 0
{extra}
[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 2.40
action = "{action}"
repeat_every = "{repeat_every}"

[watch.launch]
max_runtime = "{max_runtime}"
ready_within = "{ready_within}"
max_active = {max_active}
max_total = {max_total}
"""


class Home:
    """A folder with settings and a database, and the daemons and commands that run in it.

    Args:
        has_store: an SQLite database is there from the start, so that a daemon does not run all migrations, which takes
            longer than the rest of its start. False: the first daemon creates it.
    """

    def __init__(self, folder: Path, url: str, *, has_store: bool = True, **wanted: Any) -> None:
        self.folder = folder
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(ROOT),  # the daemon of the tree that these tests lie in
        }  # fmt: skip
        self.database_url = str(wanted.get("database_url", f"sqlite:///{folder}/gpuwatch.db"))
        path = sqlite_path(self.database_url)
        if has_store and path is not None and not path.exists():
            path.write_bytes(empty_file())
        self.write(url=url, **wanted)

    def write(self, **wanted: Any) -> None:
        plain = {
            "dry_run": "false", "extra": "", "action": "launch", "max_active": 1, "max_total": 1,
            "max_runtime": "1h", "ready_within": "15m", "repeat_every": "1s", "key": "demo-key",
            "database_url": self.database_url,
        }  # fmt: skip
        text = SETTINGS.format(**(plain | wanted))
        (self.folder / "gpuwatch.toml").write_text(text)

    def start(self, **env: str) -> ForkedProcess:
        with (self.folder / "log.txt").open("ab") as log:
            return start_gpuwatch(["run"], self.folder, self.env | env, stderr=log)

    @contextmanager
    def daemon(self, **env: str) -> Iterator[ForkedProcess]:
        child = self.start(**env)
        try:
            yield child
        except BaseException:  # pytest shows it below the failure
            print(self.log()[-SHOWN_LOG:], file=sys.stderr)
            raise
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        with TemporaryFile() as stdout, TemporaryFile() as stderr:
            child = start_gpuwatch(argv, self.folder, self.env | env, stderr=stderr, stdout=stdout)
            try:
                code = child.wait(timeout=COMMAND_S)
            finally:
                child.kill()
            texts = []
            for file in (stdout, stderr):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(["gpuwatch", *argv], code, *texts)

    def launches(self) -> list[dict[str, Any]]:
        found = self.run("launches", "--json")
        if found.returncode == 3:  # the daemon has not created the database yet
            return []
        assert found.returncode == 0, found.stderr
        return list(json.loads(found.stdout))

    def states(self) -> list[str]:
        """Return its launches, oldest first, from the database."""
        return [str(row["state"]) for row in launches(self.database_url)]

    def log(self) -> str:
        """Return the output of its daemons so far."""
        path = self.folder / "log.txt"
        return path.read_text() if path.exists() else ""


def notify_by(double: TelegramDouble) -> str:
    """Return the settings that send alerts there."""
    return f'[notify.telegram]\nbot_token = "{TOKEN}"\nchat_id = "{CHAT}"\nbase_url = "{double.base_url}"\n'


def bargain(market: Marketplace, usd_hour: float = 1.5) -> int:
    """Publish an H100 under the threshold of the settings above; return its id."""
    return int(market.publish(gpu="H100 SXM", count=1, usd_hour=usd_hour))


def wait_for(look: Callable[[], Any], within_s: float = 300.0, every_s: float = 0.1) -> Any:
    """Return the result of a check as soon as it finds something. The time limit is only for failures.

    A check that runs a whole command takes a quarter of a core at most: the daemon needs the rest.
    """
    ends_at = time.monotonic() + within_s
    while (began := time.monotonic()) < ends_at:
        if found := look():
            return found
        time.sleep(max(every_s, 3 * (time.monotonic() - began)))
    raise AssertionError("it did not happen in time")


def wait_for_searches(market: Marketplace, count: int = 3) -> None:
    """Wait until the daemon has polled this often from now on, so that immediate actions are done."""
    before = _searches(market)
    wait_for(lambda: _searches(market) >= before + count)


def _searches(market: Marketplace) -> int:
    return sum(seen.path.startswith("/api/v0/bundles") for seen in tuple(market.requests))


def wait_until_delivered(database_url: str, within_s: float = 300.0) -> None:
    """Wait until all currently waiting alerts are sent. Others may wait: a watch repeats its own every second."""
    waiting = undelivered(database_url)
    wait_for(lambda: not waiting & undelivered(database_url), within_s)


def terminate(child: ForkedProcess) -> tuple[int, float]:
    """Send SIGTERM; return the exit code and the seconds it took, without waits for a core of a busy machine."""
    began, at_first = time.monotonic(), _waited_for_a_core_s(child.pid)
    waited = at_first
    child.send_signal(signal.SIGTERM)
    while True:
        waited = max(waited, _waited_for_a_core_s(child.pid))
        try:
            code = child.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            if time.monotonic() > began + COMMAND_S:
                raise
        else:
            return code, time.monotonic() - began - (waited - at_first)


def _waited_for_a_core_s(pid: int) -> float:
    """Return the processor wait time of its main thread; 0 if the kernel does not report it, or it is gone."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
