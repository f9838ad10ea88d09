"""The pings for an external monitor, as healthchecks.io documents them: start, one a minute, and fail at once."""

from __future__ import annotations

import logging
import threading

import httpx
import pytest
import respx

from gpuwatch.daemon.service_manager import INTERVAL_S, Heartbeat
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.process.daemon_child import wait_for

URL = "https://hc-ping.com/5f0c8e1e-mine"  # docs: healthchecks.io/docs/http_api/
START, OK, FAIL = (f"{URL}{suffix}" for suffix in ("/start", "", "/fail"))


@pytest.fixture
def heartbeat(http: PooledHttpClient) -> Heartbeat:
    return Heartbeat(URL, lambda: http)


@pytest.fixture
def monitor(respx_mock: respx.MockRouter) -> respx.Route:
    """Answers every ping."""
    return respx_mock.get(url__startswith=URL).respond(text="OK")


def report(heartbeat: Heartbeat, is_healthy: bool, tick_s: float) -> None:
    heartbeat.report(is_healthy, tick_s)
    wait_for(lambda: not heartbeat.is_busy)


def pinged(monitor: respx.Route) -> list[str]:
    return [str(call.request.url) for call in monitor.calls]


def test_it_starts_and_pings_once_a_minute(heartbeat: Heartbeat, monitor: respx.Route) -> None:
    report(heartbeat, True, 0.0)
    report(heartbeat, True, INTERVAL_S - 1)
    report(heartbeat, True, INTERVAL_S)
    assert pinged(monitor) == [START, OK]
    assert [call.request.content for call in monitor.calls] == [b"", b""]


def test_what_is_wrong_is_said_at_once_and_its_end_too(heartbeat: Heartbeat, monitor: respx.Route) -> None:
    for tick_s, is_healthy in enumerate((True, False, True)):
        report(heartbeat, is_healthy, float(tick_s))
    assert pinged(monitor) == [START, FAIL, OK]


def test_a_daemon_that_never_became_healthy_fails(heartbeat: Heartbeat, monitor: respx.Route) -> None:
    report(heartbeat, False, 0.0)
    assert pinged(monitor) == [FAIL]


@pytest.mark.parametrize(
    "answer", [httpx.Response(404, text="not found"), httpx.Response(500), httpx.ConnectError, httpx.ReadTimeout]
)
def test_a_ping_that_fails_is_logged_once_and_the_next_is_sent_on_time(
    heartbeat: Heartbeat,
    monitor: respx.Route,
    caplog: pytest.LogCaptureFixture,
    answer: httpx.Response | type[httpx.TransportError],
) -> None:
    caplog.set_level(logging.INFO)
    monitor.side_effect = [answer, answer, httpx.Response(200)]
    for minute in range(3):
        report(heartbeat, True, minute * INTERVAL_S)
    assert pinged(monitor) == [START, OK, OK]
    assert caplog.text.count("cannot send the heartbeat") == 1
    assert caplog.text.count("the heartbeat works again") == 1


def test_a_server_that_hangs_holds_nothing_up(heartbeat: Heartbeat, monitor: respx.Route) -> None:
    released = threading.Event()

    def hang(_request: httpx.Request) -> httpx.Response:
        released.wait(60.0)
        return httpx.Response(200)

    monitor.side_effect = hang
    for minute in range(100):
        heartbeat.report(True, minute * INTERVAL_S)
    assert heartbeat.is_busy
    released.set()
    wait_for(lambda: not heartbeat.is_busy)
    assert pinged(monitor) == [START]
