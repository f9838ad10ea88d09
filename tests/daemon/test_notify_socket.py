"""Status reports to the service manager, over a real datagram socket; they never block."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from gpuwatch.daemon.service_manager import Notifier

Manager = tuple[str, socket.socket]


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """The manager's end: the value of NOTIFY_SOCKET, and the socket."""
    named = str(tmp_path / "notify") if request.param == "path" else f"@gpuwatch-test-{uuid4()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(named.replace("@", "\0", 1) if named.startswith("@") else named)
        line.settimeout(2)
        yield named, line


def _heard(line: socket.socket) -> str:
    return line.recv(4096).decode()


def test_each_word_reaches_the_manager(manager: Manager) -> None:
    named, line = manager
    notifier = Notifier.from_env({"NOTIFY_SOCKET": named})
    notifier.ready()
    assert _heard(line) == "READY=1"
    notifier.status("3 watches, 1 launch")
    assert _heard(line) == "STATUS=3 watches, 1 launch"
    notifier.watchdog()
    assert _heard(line) == "WATCHDOG=1"
    notifier.stopping()
    assert _heard(line) == "STOPPING=1"


def test_a_reload_bears_the_monotonic_time_in_microseconds(manager: Manager) -> None:
    named, line = manager
    Notifier(named.replace("@", "\0", 1), monotonic_ns=lambda: 12_345_678).reloading()
    assert _heard(line) == "RELOADING=1\nMONOTONIC_USEC=12345"


def test_a_status_cannot_forge_another_word(manager: Manager) -> None:
    named, line = manager
    Notifier.from_env({"NOTIFY_SOCKET": named}).status("host says\nSTOPPING=1")
    assert _heard(line) == "STATUS=host says�STOPPING=1"


@pytest.mark.parametrize("named", ["", "relative/path", "vsock:2:1234", "/nowhere/notify", "/" + "x" * 200])
def test_a_socket_that_cannot_be_used_is_no_fault(named: str) -> None:
    notifier = Notifier.from_env({"NOTIFY_SOCKET": named})
    notifier.ready()
    notifier.status("all is well")
    notifier.reloading()


def test_without_a_manager_nothing_happens() -> None:
    notifier = Notifier.from_env({})
    notifier.ready()
    notifier.watchdog()
    assert notifier.watchdog_every_s is None


def test_a_manager_that_does_not_read_holds_nobody_up(manager: Manager) -> None:
    """Its queue fills after some datagrams; later ones are dropped."""
    named, line = manager
    notifier = Notifier.from_env({"NOTIFY_SOCKET": named})
    for number in range(2_000):
        notifier.status(f"{number}")
    assert _heard(line) == "STATUS=0"


def test_the_watchdog_is_what_the_manager_waits_for() -> None:
    assert Notifier.from_env({"WATCHDOG_USEC": "60000000"}).watchdog_every_s == 60.0


def test_a_watchdog_set_for_this_process_counts() -> None:
    env = {"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}
    assert Notifier.from_env(env).watchdog_every_s == 1.5


def test_a_watchdog_set_for_another_process_does_not() -> None:
    env = {"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid() + 1)}
    assert Notifier.from_env(env).watchdog_every_s is None


@pytest.mark.parametrize("usec", ["", "0", "-5", "soon", "1.5", "²"])
def test_a_watchdog_time_that_is_none_is_as_if_unset(usec: str) -> None:
    assert Notifier.from_env({"WATCHDOG_USEC": usec}).watchdog_every_s is None
