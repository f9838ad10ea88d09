"""Tell the service manager how we are: systemd's notification protocol, without a library.

Protocol: sd_notify(3). Nothing here can fail the daemon: without a socket, or with a deaf one, it is silent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping

from gpuwatch.domain.market.text import clean


class Notifier:
    """One line to the service manager. Without an address every call does nothing."""

    def __init__(
        self,
        address: str | None = None,
        watchdog_every_s: float | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._address = address
        self._watchdog_every_s = watchdog_every_s
        self._monotonic_ns = monotonic_ns

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Notifier:
        """As NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID say; other values than theirs are as if they were unset."""
        return cls(_address(env.get("NOTIFY_SOCKET", "")), _watchdog_every_s(env))

    @property
    def watchdog_every_s(self) -> float | None:
        """Seconds within which the manager wants to hear `watchdog`; None if it does not listen for it."""
        return self._watchdog_every_s

    def ready(self) -> None:
        """The start, or the reload, is over."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={clean(text)}")

    def watchdog(self) -> None:
        """Still alive; to be said well within `watchdog_every_s`."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The end has begun."""
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """The settings are being read again; `ready` says when that is over."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={self._monotonic_ns() // 1000}")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)  # a manager whose queue is full must not hold a hunt up
            line.sendto(message.encode(), self._address)


def _address(named: str) -> str | None:
    if named.startswith("@"):
        return "\0" + named[1:]
    return named if named.startswith("/") else None


def _watchdog_every_s(env: Mapping[str, str]) -> float | None:
    usec, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not usec.isascii() or not usec.isdigit() or int(usec) == 0:
        return None
    return int(usec) / 1_000_000 if pid in {"", str(os.getpid())} else None
