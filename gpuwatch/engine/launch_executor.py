"""The rent: a durable intent goes to the provider, once; what is not known afterwards is never repeated.

A launch arrives here as `requested`, committed to disk. From then on a crash anywhere is the same case as an answer
that was lost: `follow` looks for its label before anything else happens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.watch import Budget, Watch
from gpuwatch.engine.candidate_loop import CandidateLoop, OrderResultRecorder, ProviderContext
from gpuwatch.engine.launch_alerts import LaunchAlerts
from gpuwatch.ports import LaunchRepository


class LaunchExecutor:
    """Turns reserved launches into instances. One call per launch; several may run on threads.

    Args:
        budget: it binds again when a launch is pointed at another offer, or at the same at another price.
    """

    def __init__(
        self,
        repository: LaunchRepository,
        contexts: Mapping[str, ProviderContext],
        launch_alerts: LaunchAlerts,
        clock: Callable[[], datetime],
        budget: Budget = Budget(),  # noqa: B008 a frozen value
    ) -> None:
        self._budget = budget
        self._repository = repository
        self._contexts = contexts
        self._launch_alerts = launch_alerts
        self._clock = clock
        self._in_flight: set[str] = set()
        self._lock = threading.Lock()

    def in_flight(self) -> frozenset[str]:
        """Launches that are being asked for at this moment: nobody else may touch them."""
        with self._lock:
            return frozenset(self._in_flight)

    def act(self, launch: Launch, watch: Watch, candidates: Sequence[Match], observed_at: datetime) -> Launch:
        """Rent it: the reserved offer, or the next that fits if that one is gone.

        Raises:
            LaunchMoved: somebody else took it over; nothing more was done.
            StoreError: what happened could not be written down; the row says `requested` and is looked up later.
        """
        if launch.dry_run:
            return launch
        with self._lock:
            self._in_flight.add(launch.launch_id)
        try:
            context = self._contexts[launch.provider]
            uow_factory = OrderResultRecorder(self._repository, self._launch_alerts, self._clock, self._budget)
            return CandidateLoop(uow_factory, context, watch).try_candidates(launch, candidates, observed_at)
        finally:
            with self._lock:
                self._in_flight.discard(launch.launch_id)
