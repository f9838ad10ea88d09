"""Collects the quotes that a decision waits for: queries the providers at once and decides when the window ends.

It serves the windows of `QuoteGathering` on its own thread, because an evaluation must not wait for a provider.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from datetime import datetime

from gpuwatch.engine.watches.evaluator import Evaluator
from gpuwatch.engine.watches.gather import QuoteGathering, QuoteRequest
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.errors import StoreError

log = logging.getLogger(__name__)


class QuoteCollector:
    """Serves the windows that one evaluator opens.

    Args:
        hunters: by provider; a provider that is not polled has none.
        run_now: runs a periodic task, by name, before its next scheduled time.
    """

    def __init__(
        self,
        gathering: QuoteGathering,
        evaluator: Evaluator,
        hunters: Mapping[str, Hunter],
        run_now: Callable[[str], None],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._gathering = gathering
        self._evaluator = evaluator
        self._hunters = hunters
        self._run_now = run_now
        self._clock = clock
        self._monotonic = monotonic

    def start(self) -> None:
        """Start serving on a daemon thread."""
        threading.Thread(target=self.run, name="gather", daemon=True).start()

    def run(self) -> None:
        """Serve until the gathering ends."""
        decide_at_s = math.inf
        while True:
            requests = self._gathering.next_requests(decide_at_s - self._monotonic())
            if self._gathering.is_over:  # a daemon that stops must not rent
                return
            if requests:
                for request in requests:
                    self._collect(request)
                decide_at_s = min(decide_at_s, self._monotonic() + self._gathering.longest_s)
            elif self._monotonic() >= decide_at_s:
                decide_at_s = self._monotonic() + self.decide()

    def decide(self) -> float:
        """Decide for watches that have waited long enough, even if providers have not answered.

        Returns:
            Seconds until the next decision is due; infinity: nothing waits.
        """
        try:
            return self._evaluator.decide_gathered(self._clock())
        except StoreError as error:  # the next poll decides
            log.error("cannot store a decision: %s", error)  # noqa: TRY400
        except Exception:  # a defect must not end the thread: no other window would be served
            log.exception("cannot decide on the quotes that were gathered; the next poll decides")
        return self._gathering.longest_s

    def _collect(self, request: QuoteRequest) -> None:
        """Query a provider on a separate thread: a slow one may be in the middle of a long request."""
        hunter = self._hunters.get(request.provider)
        if hunter is not None and not self._gathering.is_starting(request.provider):
            polling = threading.Thread(target=self._poll_providers, args=(hunter, request), name="quotes", daemon=True)
            polling.start()

    def _poll_providers(self, hunter: Hunter, request: QuoteRequest) -> None:
        """Query the best offer alone if the whole query takes too long, else make the whole query due now."""
        if not hunter.poll_best_offer(request.watch, self._gathering.longest_s, self._clock):
            hunter.poll_soon(request.watch)
            self._run_now(f"hunt {request.provider}")
