"""The base of a provider's emulator: a server on loopback, routes, a log of requests, faults on demand."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, reply
from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.http_server import LoopbackService
from gpuwatch.emulator.request import EmulatorRequest


class PlannedFault(NamedTuple):
    """A fault that waits for a matching request."""

    matching: re.Pattern[str]  # "POST /v2/pods"
    answer: EmulatorReply | None  # None: the connection is reset
    carried_out: bool  # the request takes effect, but its answer is lost or replaced
    delay_s: float


class ProviderServer(LoopbackService):
    """A provider on loopback; a subclass lists its routes and keeps its state under `self.lock`.

    Use it as a context manager. A route is `(method, pattern, name of a method)`; the method gets the request and the
    pattern's groups, and returns an `EmulatorReply` or a value to send as JSON, or raises `RefusedRequest`.

    Args:
        port: 0 picks a free one.
        key: the accepted key; `key_of` reads it from a request.
        clock: Unix seconds.
    """

    ROUTES: ClassVar[tuple[tuple[str, str, str], ...]] = ()

    def __init__(self, *, port: int = 0, key: str = "demo-key", clock: Clock = time.time) -> None:
        super().__init__(port)
        self.key = key
        self.clock = clock
        self.lock = threading.RLock()
        self.requests: list[EmulatorRequest] = []
        self._planned_faults: list[PlannedFault] = []

    def at(self, port: int, key: str) -> Self:
        """Set port and key; call it before the server starts."""
        self.port, self.key = port, key
        return self

    def fail(  # noqa: PLR0913 - each is a way to fail
        self,
        matching: str,
        status: int | None = 500,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        times: int = 1,
        carried_out: bool = False,
        delay_s: float = 0.0,
    ) -> None:
        """Let the next matching requests fail.

        Args:
            matching: a regular expression for "METHOD /path".
            status: of the answer; None: the connection is reset.
            carried_out: the request takes effect, and only its answer is lost.
        """
        answer = None
        if status is not None:
            answer = EmulatorReply(status, body) if isinstance(body, bytes) else reply(body or {}, status, headers)
        with self.lock:
            self._planned_faults += [PlannedFault(re.compile(matching), answer, carried_out, delay_s)] * times

    def count(self, matching: str) -> int:
        """Return the number of requests that match "METHOD /path"."""
        return sum(1 for request in self.requests if re.search(matching, f"{request.method} {request.path}"))

    def key_of(self, request: EmulatorRequest) -> str | None:
        """Return the key of a request: a bearer token, unless a provider has it elsewhere."""
        return request.key

    def routed(self, request: EmulatorRequest) -> EmulatorReply:
        """Return the answer of the first matching route; 404 if there is none."""
        for method, pattern, name in self.ROUTES:
            found = re.fullmatch(pattern, request.path)
            if found and method == request.method:
                handler: Callable[..., Any] = getattr(self, name)
                answer = handler(request, *found.groups())
                return answer if isinstance(answer, EmulatorReply) else reply(answer)
        return self.no_route(request)

    def no_route(self, request: EmulatorRequest) -> EmulatorReply:
        """Return the answer to a wrong path."""
        return reply({"error": f"no such path: {request.path}"}, 404)

    def answer(self, request: EmulatorRequest) -> EmulatorReply:
        """Answer a request, or fail as planned by `fail`."""
        request.now = self.clock()
        request.keyed = self.key_of(request) == self.key
        with self.lock:
            self.requests.append(request)
            fault = self._take_fault(f"{request.method} {request.path}")
            if fault is not None and not fault.carried_out:
                return self._send_fault(fault)
            try:
                answer = self.routed(request)
            except RefusedRequest as refusal:
                answer = refusal.reply
            except msgspec.DecodeError:
                answer = reply({"error": "the body is not JSON"}, 400)
        return answer if fault is None else self._send_fault(fault)

    def _take_fault(self, line: str) -> PlannedFault | None:
        for index, fault in enumerate(self._planned_faults):
            if fault.matching.search(line):
                return self._planned_faults.pop(index)
        return None

    def _send_fault(self, fault: PlannedFault) -> EmulatorReply:
        if fault.answer is None:
            return reply({}).with_delivery(reset=True, delay_s=fault.delay_s)
        return fault.answer.with_delivery(delay_s=fault.delay_s)
