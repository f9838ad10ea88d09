"""The page beside a daemon, under load: 50 clients of the event stream, each rereading Now as a browser does.

    python -m benchmarks.web_load [--clients 50] [--seconds 90] [--size 150]

The marketplace and the daemon are processes of their own. One watch is always under its limit and reminds every ten
seconds, which creates events; after each, every client rereads Now after a moment, as the page's script does. Another
reader requests Now ten times a second. Polls per second and resident memory are measured before the clients start and
while they run. Times are those of whole requests on persistent connections.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.idle import marketplace

GOAL_P95_MS, GOAL_MB = 60.0, 25.0
_SETTINGS = """
database_url = "sqlite:///{folder}/gpuwatch.db"
[providers.vastai]
base_url = "{url}"
api_key = "demo-key"
poll_every = "2s"
search_interval = "0.5s"
sweep_every = "30s"
rows_per_day = 0
[web]
enabled = true
listen = "127.0.0.1:0"
[[watch]]
name = "any"
gpu = ["RTX 4090", "RTX 3090", "H100", "A100"]
max_price = 100
repeat_every = "10s"
"""
_ACCEPT = {"Accept": "text/html"}


class Daemon:
    """Run `gpuwatch run` with the page."""

    def __init__(self, folder: Path, url: str) -> None:
        (folder / "gpuwatch.toml").write_text(_SETTINGS.format(folder=folder, url=url))
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        self._log = folder / "log.txt"
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "gpuwatch", "run"]
            self.child = subprocess.Popen(command, cwd=folder, env=env, stderr=log)
        while not (found := re.search(r"web page: http://([0-9.]+):(\d+)/", self._log.read_text())):
            time.sleep(0.1)
        self.address = (found[1], int(found[2]))

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found[1]) / 1024 if found else 0.0

    def searches(self) -> float:
        text = self.get("/metrics").decode()
        found = re.findall(r"^gpuwatch_searches_total\{.*\} (\S+)", text, re.MULTILINE)
        return sum(map(float, found))

    def get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        connection.request("GET", path)
        body = connection.getresponse().read()
        connection.close()
        return body


class Reader:
    """Reads Now on one connection, and notes the time of each request."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.took_ms: list[float] = []
        self._connection = http.client.HTTPConnection(*address, timeout=30)

    def read(self) -> None:
        began = time.perf_counter()
        self._connection.request("GET", "/", headers=_ACCEPT)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        self.took_ms.append((time.perf_counter() - began) * 1000)


def client(address: tuple[str, int], reader: Reader, ends_s: float) -> None:
    """Follow the events; read Now a moment after each, like gpuwatch.js."""
    with socket.create_connection(address) as stream:
        stream.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        stream.settimeout(0.5)
        while time.monotonic() < ends_s:
            try:
                received = stream.recv(65536)
            except TimeoutError:
                continue
            if b"\nid: " in received or received.startswith(b"id: "):
                time.sleep(_MOMENT_S)
                reader.read()


_MOMENT_S = 0.2  # as in gpuwatch.js


def load(daemon: Daemon, clients: int, seconds: float) -> tuple[Reader, list[Reader]]:
    """Run the steady reader, and the clients that follow events."""
    ends_s = time.monotonic() + seconds
    woken = [Reader(daemon.address) for _ in range(clients)]
    threads = [threading.Thread(target=client, args=(daemon.address, one, ends_s)) for one in woken]
    for thread in threads:
        thread.start()
    steady = Reader(daemon.address)
    while time.monotonic() < ends_s:
        steady.read()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    return steady, woken


@contextmanager
def daemon_in(folder: Path, size: int) -> Iterator[Daemon]:
    with marketplace(size) as url:
        running = Daemon(folder, url)
        try:
            yield running
        finally:
            running.child.send_signal(signal.SIGTERM)
            running.child.wait(20)


def line(name: str, took_ms: list[float]) -> str:
    if len(took_ms) < 20:
        return f"{name}: {len(took_ms)} requests, too few"
    p95 = statistics.quantiles(took_ms, n=20)[-1]
    median, most = statistics.median(took_ms), max(took_ms)
    return f"{name}: median {median:.1f} ms, p95 {p95:.1f} ms, max {most:.0f} ms (n = {len(took_ms)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--size", type=int, default=150)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, daemon_in(Path(name), args.size) as daemon:
        daemon.get("/")
        time.sleep(5.0)
        before, began = daemon.searches(), time.monotonic()
        time.sleep(15.0)
        alone, alone_mb = (daemon.searches() - before) / (time.monotonic() - began), daemon.memory_mb()
        before, began = daemon.searches(), time.monotonic()
        steady, woken = load(daemon, args.clients, args.seconds)
        beside = (daemon.searches() - before) / (time.monotonic() - began)
        print(line("Now, ten times a second", steady.took_ms), f"goal: p95 at most {GOAL_P95_MS:.0f} ms")
        print(
            line(
                f"Now, by {args.clients} clients at once after each event", [ms for one in woken for ms in one.took_ms]
            )
        )
        print(f"polls per second: {alone:.2f} alone, {beside:.2f} beside the clients")
        print(
            f"memory: {alone_mb:.1f} MB alone, {daemon.memory_mb():.1f} MB after, goal: {GOAL_MB:.0f} MB more at most"
        )


if __name__ == "__main__":
    main()
