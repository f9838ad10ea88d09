"""The threads that rent: each provider has its own, so that one that does not answer holds up no other's order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Final

_ABREAST: Final = 4  # orders at one provider at the same time


class ProviderExecutors:
    """Does what is given to it on threads of the provider that it is for. Threads start when they are needed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._begun: dict[str, list[Future[None]]] = {}

    def begin(self, provider: str, work: Callable[[], None]) -> None:
        """Do it soon."""
        with self._lock:
            if provider not in self._pools:
                self._pools[provider] = ThreadPoolExecutor(_ABREAST, thread_name_prefix=f"act {provider}")
            self._begun.setdefault(provider, []).append(self._pools[provider].submit(work))

    def wait_for_begun(self, provider: str, at_most_s: float) -> None:
        """Let what was begun there since the last call end, but not for long."""
        with self._lock:
            begun = self._begun.pop(provider, [])
        wait(begun, timeout=at_most_s)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Take nothing more."""
        for pool in self._pools.values():
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)
