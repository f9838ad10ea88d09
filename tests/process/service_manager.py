"""External monitors of a daemon: systemd's end of the notify socket, and the address of the heartbeat."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving


class ServiceManager:
    """Stores what the daemon sends there."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self.lines: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.lines += self._socket.recv(8192).decode().splitlines()

    def pings(self) -> int:
        return self.lines.count("WATCHDOG=1")

    def status(self) -> str:
        return next((line for line in reversed(self.lines) if line.startswith("STATUS=")), "")

    def close(self) -> None:
        self._socket.close()


@contextmanager
def heard_heartbeats() -> Iterator[tuple[str, list[str]]]:
    """Serve an address for pings; yields it with the received paths after it."""
    paths: list[str] = []

    def answer(request: ReceivedRequest, writer: ReplyWriter) -> None:
        paths.append(request.path.removeprefix("/secret-of-mine"))
        writer.answer()

    with serving(answer) as server:
        yield f"{server.url}/secret-of-mine", paths
