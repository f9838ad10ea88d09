"""The pings for an external monitor: start, one a minute, and fail at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from gpuwatch.daemon.heartbeat import INTERVAL_S, Heartbeat
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving


class World:
    """A heartbeat, and the requests that its server received."""

    def __init__(self, url: str, paths: list[str], http: PooledHttpClient) -> None:
        self.paths = paths
        self.heartbeat = Heartbeat(f"{url}/mine", lambda: http)

    def report(self, is_healthy: bool, tick_s: float) -> list[str]:
        """Return the received requests after this ping."""
        self.heartbeat.report(is_healthy, tick_s)
        ends_at = time.monotonic() + 60
        while self.heartbeat.is_busy and time.monotonic() < ends_at:
            time.sleep(0.01)
        return self.paths


@contextmanager
def world(status: int = 200) -> Iterator[World]:
    paths: list[str] = []

    def answer(request: ReceivedRequest, writer: ReplyWriter) -> None:
        paths.append(f"{request.method} {request.path}")
        writer.answer(status)

    with serving(answer) as server:
        http = PooledHttpClient()
        try:
            yield World(server.url, paths, http)
        finally:
            http.close()


def test_it_starts_and_pings_once_a_minute() -> None:
    with world() as one:
        one.report(True, 0.0)
        one.report(True, INTERVAL_S - 1)
        assert one.report(True, INTERVAL_S) == ["GET /mine/start", "GET /mine"]


def test_what_is_wrong_is_said_at_once_and_its_end_too() -> None:
    with world() as one:
        one.report(True, 0.0)
        one.report(False, 1.0)
        assert one.report(True, 2.0) == ["GET /mine/start", "GET /mine/fail", "GET /mine"]


def test_a_daemon_that_never_became_healthy_fails() -> None:
    with world() as one:
        assert one.report(False, 0.0) == ["GET /mine/fail"]


def test_a_server_that_refuses_changes_nothing() -> None:
    with world(500) as one:
        one.report(True, 0.0)
        assert one.report(True, INTERVAL_S) == ["GET /mine/start", "GET /mine"]


def test_a_server_that_hangs_holds_nothing_up() -> None:
    def answer(request: ReceivedRequest, writer: ReplyWriter) -> None:
        time.sleep(0.5)
        writer.close()

    with serving(answer) as server:
        http = PooledHttpClient()
        one = World(server.url, [], http)
        began = time.monotonic()
        for tick_s in range(100):
            one.heartbeat.report(True, tick_s * INTERVAL_S)
        assert one.heartbeat.is_busy or time.monotonic() - began >= 0.5
        one.report(True, 0.0)
        http.close()
