"""The embedded marketplace, for tests, demo and benchmarks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from gpuwatch.emulator.answers import EmulatorReply, moved
from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.control_api import control
from gpuwatch.emulator.fault_injection import apply_fault
from gpuwatch.emulator.http_server import LoopbackServer, packed
from gpuwatch.emulator.request import EmulatorRequest
from gpuwatch.emulator.routes import handle, route_of
from gpuwatch.emulator.test_controls import MarketControls


class Marketplace(MarketControls):
    """A marketplace on loopback that speaks vast.ai's protocol.

    Use it as a context manager; it serves on 127.0.0.1 from `start` (or entering) to `close`.

    Args:
        port: 0 takes a free one.
        control: whether /control answers.
        tick_every_s: let the market move by itself; None leaves that to `tick`.
        clock: Unix seconds; a `ManualClock` lets a test skip hours.
        options: the fields of `simulation.MarketplaceOptions`: seed, key, size, delays, limits and so on.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        control: bool = False,
        tick_every_s: float | None = None,
        clock: Clock = time.time,
        **options: Any,
    ) -> None:
        super().__init__(clock, **options)
        self._port, self._control, self._tick_every_s = port, control, tick_every_s
        self._wire: LoopbackServer | None = None
        self._threads: list[threading.Thread] = []

    # --- serving ---------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Open the socket and serve in threads of its own."""
        self._wire = LoopbackServer(self._port, self._answer)
        loops: list[Callable[[], None]] = [lambda: self._serving.serve_forever(poll_interval=0.01)]
        if self._tick_every_s is not None:
            loops.append(self._tick_on)
        self._threads = [threading.Thread(target=loop, name="marketplace", daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()
        return self

    def close(self) -> None:
        """End every connection and every thread."""
        if self._wire is not None:
            self._wire.close()
            for thread in self._threads:
                thread.join(timeout=5)
            self._wire = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        return self._serving.url

    @property
    def key(self) -> str:
        """The API key that it knows."""
        return self.options.key

    @property
    def _serving(self) -> LoopbackServer:
        if self._wire is None:
            raise RuntimeError("the marketplace is not open: use it in a with statement, or call start()")
        return self._wire

    def _tick_on(self) -> None:
        while not self._serving.stopping.wait(self._tick_every_s):
            self.tick()

    def _answer(self, request: EmulatorRequest) -> EmulatorReply:
        if request.path.startswith("/control/") and self._control:
            return control(self, request)
        request.now = self.clock()
        self._log.append(request)
        if not request.path.endswith("/"):
            return moved(request.path + "/")
        route = route_of(request)
        request.endpoint = route.endpoint if route else "unknown"
        if request.endpoint == "request_logs":
            request.params["_base"] = self.url
        fault = self.faults.draw(request.endpoint)
        answer = (
            self._handle(request)
            if fault is None
            else apply_fault(self._simulation, request, fault, lambda: self._handle(request))
        )
        if self.options.gzip and request.gzip and len(answer.body) > 1000 and not answer.headers:
            answer = replace(answer, body=packed(answer.body), headers=(("Content-Encoding", "gzip"),))
        return answer

    def _handle(self, request: EmulatorRequest) -> EmulatorReply:
        return handle(self._simulation, request)
