"""The embedded marketplace, for tests, demo and benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from gpuwatch.emulator.answers import EmulatorReply, moved_permanently
from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.control_api import control
from gpuwatch.emulator.fault_injection import apply_fault
from gpuwatch.emulator.http_server import LoopbackService, gzip_cached
from gpuwatch.emulator.request import EmulatorRequest
from gpuwatch.emulator.routes import find_route, handle
from gpuwatch.emulator.test_controls import MarketControls


class Marketplace(MarketControls, LoopbackService):
    """A marketplace on loopback that speaks vast.ai's protocol.

    Use it as a context manager; it serves on 127.0.0.1 from `start` (or entering) to `close`.

    Args:
        port: 0 picks a free one.
        control: whether to serve /control.
        tick_every_s: let the market move by itself; None: only `tick` moves it.
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
        MarketControls.__init__(self, clock, **options)
        LoopbackService.__init__(self, port)
        self._control, self._tick_every_s = control, tick_every_s

    @property
    def key(self) -> str:
        """The accepted API key."""
        return self.options.key

    def close(self) -> None:
        """Stop serving, and halt the machines of its instances."""
        LoopbackService.close(self)
        if self._simulation.fleet.machines is not None:
            self._simulation.fleet.machines.close()

    def background_loops(self) -> list[Callable[[], None]]:
        """Start the market's own movement, if it has one."""
        return [] if self._tick_every_s is None else [self._tick_periodically]

    def _tick_periodically(self) -> None:
        while not self.listener.stopping.wait(self._tick_every_s):
            self.tick()

    def answer(self, request: EmulatorRequest) -> EmulatorReply:
        """Answer a request, with its fault if there is one."""
        if request.path.startswith("/control/") and self._control:
            return control(self, request)
        request.now = self.clock()
        self._log.append(request)
        if not request.path.endswith("/"):
            return moved_permanently(request.path + "/")
        route = find_route(request)
        request.endpoint = route.endpoint if route else "unknown"
        if request.endpoint == "request_logs":
            request.params["_base"] = self.url
        fault = self.faults.draw(request.endpoint)
        handle_normally = partial(handle, self._simulation, request)
        answer = handle_normally() if fault is None else apply_fault(self._simulation, request, fault, handle_normally)
        if self.options.gzip and request.gzip and len(answer.body) > 1000 and not answer.headers:
            answer = replace(answer, body=gzip_cached(answer.body), headers=(("Content-Encoding", "gzip"),))
        return answer
