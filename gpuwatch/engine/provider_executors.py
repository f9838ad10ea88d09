"""Threads for launches, a pool per provider: a provider that does not answer delays no other's order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Final, ParamSpec

_PARALLEL_ORDERS: Final = 4  # at one provider
P = ParamSpec("P")


class ProviderExecutors:
    """Runs work on threads of the provider it is for. A thread starts when it is needed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._submitted: dict[str, list[Future[None]]] = {}

    def submit(self, provider: str, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run it soon."""
        with self._lock:
            if provider not in self._pools:
                self._pools[provider] = ThreadPoolExecutor(_PARALLEL_ORDERS, thread_name_prefix=f"launch {provider}")
            future = self._pools[provider].submit(work, *args, **kwargs)
            self._submitted.setdefault(provider, []).append(future)

    def wait_for_submitted(self, provider: str, at_most_s: float) -> None:
        """Wait for what was submitted there since the last call, but not for long."""
        with self._lock:
            submitted = self._submitted.pop(provider, [])
        wait(submitted, timeout=at_most_s)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Accept nothing more."""
        for pool in self._pools.values():
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)
