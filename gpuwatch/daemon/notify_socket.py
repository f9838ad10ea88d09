"""Reports the daemon's state to the service manager: systemd's notification protocol, without a library.

Protocol: sd_notify(3). No error here affects the daemon: without a working socket, nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping

from gpuwatch.domain.market.text import clean


class Notifier:
    """Sends lines to the service manager. Without an address every call does nothing."""

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
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; invalid values count as unset."""
        return cls(_address(env.get("NOTIFY_SOCKET", "")), _watchdog_every_s(env))

    @property
    def has_manager(self) -> bool:
        """Whether there is a service manager."""
        return self._address is not None

    @property
    def watchdog_every_s(self) -> float | None:
        """The seconds within which the manager expects `watchdog`; None: it expects none."""
        return self._watchdog_every_s

    def ready(self) -> None:
        """Report that the start or the reload is complete."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Send one line for `systemctl status`."""
        self._send(f"STATUS={clean(text)}")

    def watchdog(self) -> None:
        """Report that the process is alive; call it well within `watchdog_every_s`."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the daemon is stopping."""
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """Report that the settings are being reloaded; `ready` reports the end of that."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={self._monotonic_ns() // 1000}")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.setblocking(False)  # a manager with a full queue must not delay a hunt
            line.sendto(message.encode(), self._address)


def _address(name: str) -> str | None:
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else None


def _watchdog_every_s(env: Mapping[str, str]) -> float | None:
    usec, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not usec.isascii() or not usec.isdigit() or int(usec) == 0:
        return None
    return int(usec) / 1_000_000 if pid in {"", str(os.getpid())} else None
