"""The embedded marketplace as tests, demo and benchmarks use it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from gpuwatch.emulator.answers import EmulatorReply, moved
from gpuwatch.emulator.clock import Clock
from gpuwatch.emulator.control_api import control
from gpuwatch.emulator.fault_injection import apply_fault
from gpuwatch.emulator.fault_rules import FaultRules
from gpuwatch.emulator.http_server import LoopbackServer, packed
from gpuwatch.emulator.ledger import Ledger
from gpuwatch.emulator.market import SOMEBODY
from gpuwatch.emulator.marketplace_state import MarketplaceCore, MarketplaceOptions
from gpuwatch.emulator.request import EmulatorRequest, LoggedRequest, logged_request
from gpuwatch.emulator.routes import handle, route_of
from gpuwatch.emulator.test_controls import MarketControls

KEPT_REQUESTS = 20_000


class Marketplace(MarketControls):
    """A marketplace on loopback that speaks vast.ai's protocol.

    Use it as a context manager; it serves on 127.0.0.1 from `start` (or entering) to `close`.

    Args:
        port: 0 takes a free one.
        control: whether /control answers.
        tick_every_s: let the market move by itself; None leaves that to `tick`.
        clock: Unix seconds; a `ManualClock` lets a test skip hours.
        options: the fields of `exchange.Options`: seed, key, size, delays, limits and so on.
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
        self.clock = clock
        self.options = MarketplaceOptions(**options)
        self.faults = FaultRules(self.options.seed)
        super().__init__(MarketplaceCore(self.options, clock))
        self._log: deque[EmulatorRequest] = deque(maxlen=KEPT_REQUESTS)
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
            else apply_fault(self._core, request, fault, lambda: self._handle(request))
        )
        if self.options.gzip and request.gzip and len(answer.body) > 1000 and not answer.headers:
            answer = replace(answer, body=packed(answer.body), headers=(("Content-Encoding", "gzip"),))
        return answer

    def _handle(self, request: EmulatorRequest) -> EmulatorReply:
        return handle(self._core, request)

    # --- the market ------------------------------------------------------------------------------------------

    def publish(self, *, gpu: str = "H100 SXM", count: int = 1, usd_hour: float = 2.0, **fields: Any) -> int:
        """List a new machine.

        Args:
            gpu: the name as it goes over the wire; an unknown one is taken as it is.
            count: GPUs of the offer whose id is answered.
            usd_hour: for the GPUs of the whole offer; the disk is free unless `storage_cost` is given.
            fields: `min_bid`, `machine_id`, `host_id`, `verified`, `country`, `machine_gpus` and `slices` (a machine
                sold in overlapping parts), `pinned` (False lets ticks move it), `defect` (a fate of `lives.FATES` that
                every instance on it meets), and any field of an offer.

        Returns:
            The offer's id.

        Raises:
            TypeError: offers have no such field.
        """
        with self._core.lock:
            return self._core.market.publish(gpu, count, usd_hour, fields)

    def reprice(self, offer_id: int, usd_hour: float | None = None, min_bid: float | None = None) -> None:
        """Change the price or the lowest bid of an offer, USD per hour for the whole of it."""
        with self._core.lock:
            self._core.market.reprice(offer_id, usd_hour, min_bid)

    def withdraw(self, offer_id: int) -> None:
        """Take one offer off the market; the other slices of its machine stay."""
        with self._core.lock:
            self._core.market.withdraw(offer_id)

    def take(self, offer_id: int) -> None:
        """Let somebody else rent an offer: it vanishes with all that overlap it."""
        with self._core.lock:
            market = self._core.market
            market.take(market.listings[offer_id], SOMEBODY)

    def occupy(self, instance_id: int) -> None:
        """Let somebody else rent the GPUs of a stopped instance: its next start is queued."""
        with self._core.lock:
            one = self._instance(instance_id)
            self._core.market.hold(one.machine, one.gpus, SOMEBODY)

    def give_back(self, machine_id: int) -> None:
        """Let that somebody go: the machine's GPUs are for sale again, queued starts begin."""
        with self._core.lock:
            self._core.market.release(self._core.market.machines[machine_id], SOMEBODY)
            self._core.settle()

    def tick(self) -> None:
        """Let the market move by one step."""
        with self._core.lock:
            self._core.market.tick()

    def held(self) -> AbstractContextManager[bool]:
        """Hold everything still: what is changed inside becomes visible at once."""
        return self._core.lock

    def warm(self) -> None:
        """Encode the large answers anew that were asked for lately, so that the next request finds them ready."""
        with self._core.lock:
            self._core.search.warm(self.clock())

    def offers(self) -> list[dict[str, Any]]:
        """Answer all listed offers as an on-demand search with 8 GB shows them."""
        with self._core.lock:
            now = self.clock()
            found = self._core.search.find({}, now)
            return [one.row(found.query.view, now) for one in found.listings]

    # --- for auditors ----------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """What really happened: creates, destroys, alive, bills."""
        return self._core.ledger

    @property
    def requests(self) -> list[LoggedRequest]:
        """The last 20,000 requests, oldest first, without secrets; those to /control are left out."""
        return [logged_request(request) for request in list(self._log)]
