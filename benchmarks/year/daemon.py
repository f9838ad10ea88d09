"""A daemon as a process, and the processor time that it and its PostgreSQL server take."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class Daemon(NamedTuple):
    """A running daemon with its page."""

    pid: int
    host: str
    port: int
    server_pid: int | None = None  # of PostgreSQL

    @property
    def cpu_s(self) -> float:
        """The processor time so far, with the database server's."""
        return cpu_s(self.pid) + (0.0 if self.server_pid is None else tree_cpu_s(self.server_pid))

    @property
    def peak_mb(self) -> float:
        """The highest resident memory so far."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    def percent_of_a_core(self, seconds: float) -> float:
        """Measure for this long."""
        before_s, began_s = self.cpu_s, time.monotonic()
        time.sleep(seconds)
        return 100 * (self.cpu_s - before_s) / (time.monotonic() - began_s)

    def cpu_s_of(self, path: str) -> float:
        """Read a page once; return the processor time."""
        before_s = self.cpu_s
        connection = http.client.HTTPConnection(self.host, self.port, timeout=300)
        connection.request("GET", path, headers={"Accept": "text/plain" if path == "/metrics" else "text/html"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
        return self.cpu_s - before_s


@contextmanager
def running(folder: Path, settings: str, server_pid: int | None = None, within: Sequence[str] = ()) -> Iterator[Daemon]:
    """Run `gpuwatch run` with these settings, which enable the page.

    Args:
        within: a command that becomes the daemon's, such as one that enters a control group.
    """
    (folder / "gpuwatch.toml").write_text(settings)
    (folder / "gpuwatch.toml").chmod(0o600)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    log = folder / "log.txt"
    start = [*within, sys.executable, "-m", "gpuwatch", "run"]
    with log.open("wb") as file:
        child = subprocess.Popen(start, cwd=folder, env=env, stderr=file)
    try:
        while not (found := re.search(r"web page: http://([0-9.]+):(\d+)/", log.read_text())):
            if child.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.1)
        if "is ignored" in log.read_text():  # rescue mode
            raise SystemExit(log.read_text())
        yield Daemon(child.pid, found[1], int(found[2]), server_pid)
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def cpu_s(pid: int) -> float:
    """The processor time of a process, without its children."""
    return sum(_times(pid)[:2]) / TICKS


def tree_cpu_s(pid: int) -> float:
    """The processor time of a process and its children, including those that have ended."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has just ended; its parent counts it
        return 0.0
    return sum(_times(pid)) / TICKS + sum(tree_cpu_s(int(child)) for child in children)


def _times(pid: int) -> list[int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended; its parent counts it
        return [0, 0, 0, 0]
    return [int(field) for field in fields[11:15]]
