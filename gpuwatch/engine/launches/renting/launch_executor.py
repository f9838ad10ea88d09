"""Turns reserved launches into instances: sends a durable intent to the provider once, never again.

A launch arrives here as `requested`, committed to disk. From then on a crash is the same case as a lost answer: the
reconciler looks for the launch's label before anything else happens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Final, ParamSpec

from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.following.transition_executor import TransitionExecutor
from gpuwatch.engine.launches.renting.candidate_loop import CandidateLoop, ProviderContext
from gpuwatch.engine.launches.renting.launch_slots import LaunchSlots
from gpuwatch.errors import GpuwatchError

if TYPE_CHECKING:
    from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

log = logging.getLogger(__name__)
_PARALLEL_ORDERS: Final = 4  # at one provider
P = ParamSpec("P")


class LaunchExecutor:
    """Rents reserved launches, on threads of their provider (`start`) or on the caller's thread (`execute`).

    Args:
        budget: checked again when the offer or the price of a launch changes.
    """

    def __init__(
        self,
        repository: SqlLaunchRepository,
        contexts: Mapping[str, ProviderContext],
        launch_alerts: LaunchAlerts,
        clock: Callable[[], datetime],
        budget: Budget = Budget(),  # noqa: B008 a frozen value
        slots: LaunchSlots | None = None,
    ) -> None:
        self._contexts = contexts
        self._repository = repository
        self._transitions = TransitionExecutor(repository, launch_alerts)
        self._clock = clock
        self._budget = budget
        self._slots = slots or LaunchSlots()
        self._threads = ProviderExecutors()

    def not_ready(self, provider: str, price_microusd_hour: int, watch: str) -> str | None:
        """Return why nothing can be rented there at this price for this watch now, in one line, or None.

        Raises StoreError.
        """
        context = self._contexts.get(provider)
        if context is None:
            return f"gpuwatch cannot rent at {provider}"
        return context.not_ready(price_microusd_hour, watch)

    def start(self, launch: Launch, watch: Watch, candidates: Sequence[Match]) -> None:
        """Rent it on a thread of its provider. The arguments are those of `execute`."""
        self._threads.submit(launch.provider, self._run, launch, watch, candidates)

    def wait_for_started(self, provider: str, at_most_s: float) -> None:
        """Wait briefly for the launches started at a provider since the last call."""
        self._threads.wait_for_submitted(provider, at_most_s)

    def execute(self, launch: Launch, watch: Watch, candidates: Sequence[Match]) -> Launch:
        """Rent the first available candidate, and record the provider's answer.

        Args:
            candidates: the reserved offer first, then the next best of any provider.

        Raises:
            LaunchConflict: another process took over the launch; nothing more was done.
            StoreError: the result could not be stored; the row stays `requested` and is reconciled later.
        """
        return self._loop(watch).try_candidates(launch, candidates)

    def shutdown(self, wait: bool = False) -> None:
        """Start nothing more; running work continues.

        Args:
            wait: wait until all started work is done; if False, drop work that has not begun.
        """
        self._threads.shutdown(wait=wait, cancel_futures=not wait)

    def _loop(self, watch: Watch) -> CandidateLoop:
        return CandidateLoop(
            self._repository,
            self._transitions,
            self._contexts,
            watch,
            self._budget,
            clock=self._clock,
            slots=self._slots,
        )

    def _run(self, launch: Launch, watch: Watch, candidates: Sequence[Match]) -> None:
        asked = {launch.provider}
        try:
            done = self._loop(watch).try_candidates(launch, candidates)
            asked.add(done.provider)
            if done.state is LaunchState.FAILED:
                self._slots.free(watch.name)
        except GpuwatchError as error:
            log.error("launch %s: %s", launch.launch_id, error)  # noqa: TRY400 its row shows its state
        except Exception:
            log.exception("launch %s was interrupted; the reconciler continues it", launch.launch_id)
        for provider in asked:
            context = self._contexts.get(provider)
            if context is not None and context.reconciler is not None:
                context.reconciler.run_soon()
        self._slots.run_now("deliver")


class ProviderExecutors:
    """Runs work on threads per provider: one that does not answer delays no order at another."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._submitted: dict[str, list[Future[None]]] = {}

    def submit(self, provider: str, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run it on a thread of the provider."""
        with self._lock:
            if provider not in self._pools:
                self._pools[provider] = ThreadPoolExecutor(_PARALLEL_ORDERS, thread_name_prefix=f"launch {provider}")
            future = self._pools[provider].submit(work, *args, **kwargs)
            self._submitted.setdefault(provider, []).append(future)

    def wait_for_submitted(self, provider: str, at_most_s: float) -> None:
        """Wait briefly for the work submitted there since the last call."""
        with self._lock:
            submitted = self._submitted.pop(provider, [])
        wait(submitted, timeout=at_most_s)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Accept no more work."""
        for pool in self._pools.values():
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)
