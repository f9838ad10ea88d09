"""Starts gpuwatch by forking a process that has its modules loaded: this takes a fifth of the processor time.

The child runs the real program from `gpuwatch.__main__.main` on, in a process of its own with its own environment,
folder and signals. Before the fork there are only imports, which do nothing in gpuwatch's modules (test_layout.py),
packaged tables of GPU names are read, which nothing changes, and settings of an empty home are validated: pydantic's
tables of them take half the time of a command. It ends like Python: threads are waited for, atexit handlers run, output
is written. Only the modules are not torn down: that would copy all their shared pages, and take twice the time of a
whole command.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

ROOT = Path(__file__).parents[2]
PRELOADED = (
    "alembic.command", "alembic.config", "apscheduler.executors.pool", "apscheduler.schedulers.background",
    "apscheduler.triggers.interval", "certifi", "click", "click.shell_completion", "httpx", "msgspec",
    "rich.console", "rich.table", "sqlalchemy", "sqlalchemy.dialects.sqlite", "tenacity",
    "gpuwatch.__main__", "gpuwatch.app.alerts.alerts", "gpuwatch.app.jobs.jobs",
    "gpuwatch.app.launches.approval_details", "gpuwatch.app.launches.approvals", "gpuwatch.app.launches.launches",
    "gpuwatch.app.launches.stop", "gpuwatch.app.setup.sharing.alert_pictures", "gpuwatch.app.watches.pauses",
    "gpuwatch.bootstrap.service", "gpuwatch.chat.replies", "gpuwatch.cli.alerts.alerts", "gpuwatch.cli.jobs.jobs",
    "gpuwatch.cli.launches.approvals", "gpuwatch.cli.launches.launches", "gpuwatch.cli.setup.run_daemon",
    "gpuwatch.daemon.process",
    "gpuwatch.engine.launches.following.launch_hooks", "gpuwatch.hooks.owner_hooks", "gpuwatch.notifiers.telegram",
    "gpuwatch.providers.toolkit.http.client", "gpuwatch.providers.vastai.client",
    "gpuwatch.providers.vastai.launcher", "gpuwatch.providers.vastai.market", "gpuwatch.settings.validate",
    "gpuwatch.storage.setup.migrate", "gpuwatch.storage.launches.obligation_file", "gpuwatch.web.serving",
)  # fmt: skip
USUAL_SETTINGS = b"""
[providers.vastai]
api_key = "k"
[notify.telegram]
bot_token = "1:a"
chat_id = "1"
"""


# --- in the tests' process --------------------------------------------------------------------------------------------


class ForkedProcess:
    """The part of `subprocess.Popen` that tests need, for a process that is not our own child."""

    def __init__(self, args: Sequence[str], status: socket.socket) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self._status = status
        self.pid = int(status.recv(32))  # the server answers at once

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._status.settimeout(max(timeout, 1e-4) if timeout is not None else None)
            try:
                self.returncode = os.waitstatus_to_exitcode(int(self._status.recv(32)))
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; does nothing if it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class _Client:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control, self._lock = ours, threading.Lock()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.process.fork_server", str(theirs.fileno())],
                cwd=ROOT, pass_fds=[theirs.fileno()],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        atexit.register(self.close)

    def start(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], stdout: IO[bytes] | None, stderr: IO[bytes]
    ) -> ForkedProcess:
        request = json.dumps({"argv": list(argv), "cwd": str(cwd), "env": dict(env)}).encode()
        status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        files = [1 if stdout is None else stdout.fileno(), stderr.fileno(), theirs.fileno()]
        with theirs, self._lock:
            socket.send_fds(self._control, [request], files)
        return ForkedProcess(["gpuwatch", *argv], status)

    def close(self) -> None:
        self._control.close()
        self._server.wait(timeout=240)


@cache
def _client() -> _Client:
    return _Client()


def start_gpuwatch(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], stderr: IO[bytes], stdout: IO[bytes] | None = None
) -> ForkedProcess:
    """Run `gpuwatch ARGV…` in a process of its own. `stdout` None: ours."""
    return _client().start(argv, cwd, env, stdout, stderr)


# --- the server -------------------------------------------------------------------------------------------------------

# A child has closed their files by number: as garbage, they would close what has the same numbers since.
_KEPT: list[object] = []


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork at every request. Return the request in each child, and None in the server at the end."""
    watched = selectors.DefaultSelector()
    watched.register(control, selectors.EVENT_READ)
    running: dict[int, tuple[int, socket.socket]] = {}  # file of the child → its number, where its end is reported
    while True:
        for key, _ in watched.select():
            if key.fileobj is control:
                request, files, *_ = socket.recv_fds(control, 1 << 20, 3)
                if not request:
                    for pid, _ in running.values():
                        os.kill(pid, signal.SIGKILL)
                    return None
                pid = os.fork()
                if pid == 0:
                    _KEPT.extend((watched, running))
                    return json.loads(request) | {"files": files[:2]}
                status = socket.socket(fileno=files[2])
                status.send(str(pid).encode())
                for file in files[:2]:
                    os.close(file)
                ended = os.pidfd_open(pid)
                running[ended] = (pid, status)
                watched.register(ended, selectors.EVENT_READ)
            else:
                ended = int(key.fd)
                watched.unregister(ended)
                os.close(ended)
                pid, status = running.pop(ended)
                with status, contextlib.suppress(OSError):  # whoever asked may be gone
                    status.send(str(os.waitpid(pid, 0)[1]).encode())


def _become(request: dict[str, Any]) -> None:
    """Become the requested process: its folder, environment and output, and no file of the server's."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    for number, file in enumerate(request["files"], 1):
        os.dup2(file, number)
    os.closerange(3, 256)
    random.seed()
    sys.argv = ["gpuwatch", *request["argv"]]
    _search_here()


def _search_here() -> None:
    """What is found of plugins holds for a search path: before the fork it is that of the children."""
    sys.path[:] = [str(ROOT), *(place for place in sys.path if place not in {"", str(ROOT)})]


def main() -> None:
    """Load the libraries, then serve on the socket with the given number."""
    for name in PRELOADED:
        __import__(name)
    from gpuwatch.providers.vastai.market import wire_names
    from gpuwatch.settings import load
    from gpuwatch.storage.setup.sqlite_driver import sqlite_driver

    _search_here()
    sqlite_driver()
    wire_names(("H100 SXM", "RTX 4090"))  # packaged tables, which are only read
    with TemporaryDirectory() as home:
        load(env={"HOME": home}, cwd=Path(home), content=USUAL_SETTINGS)
    gc.freeze()  # otherwise each child's exit would traverse all loaded objects, for five times its own work
    with socket.socket(fileno=int(sys.argv[1])) as control:
        request = _serve(control)
        if request is None:
            return
        control.detach()
    _become(request)
    from gpuwatch.__main__ import main as run_gpuwatch

    try:
        run_gpuwatch()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _end(ended.code or 0)
        raise
    _end(0)


def _end(code: int) -> None:
    """Do what Python does at the end of a process, in its order, before it tears down modules."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
