"""Clouds that the library queries itself: it runs in a thread, which is abandoned after its deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderDown, ProviderError

_POLL_S: Final = 0.05  # how often to check whether gpuwatch is stopping
_CLASSES: Final = {  # the library's modules and classes that may be used
    "daytona": "DaytonaProvider",
    "digitalocean": "DigitalOceanProvider",
    "hotaisle": "HotAisleProvider",
    "jarvislabs": "JarvisLabsProvider",
    "lium": "LiumProvider",
    "seeweb": "SeewebProvider",
    "vultr": "VultrProvider",
}


class TimeBox:
    """Runs what may hang. A hanging call is abandoned: its thread ends with the process, and it is not started again.

    Args:
        stop: ends every wait when set.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._running: dict[str, threading.Thread] = {}

    def run(self, name: str, call: Callable[[], Sequence[Any]], deadline_s: float) -> Sequence[Any]:
        """Return the result of `call`; passes on its errors.

        Raises:
            ProviderDown: it takes too long, an earlier call has not returned yet, or gpuwatch is stopping.
        """
        previous = self._running.get(name)
        if previous is not None and previous.is_alive():
            raise ProviderDown(f"gpuhunt: {name} has not answered an earlier request yet")
        results: list[Sequence[Any]] = []
        errors: list[Exception] = []

        def run_call() -> None:
            try:
                results.append(call())
            except Exception as error:  # raised again by the waiting thread
                errors.append(error)

        thread = self._running[name] = threading.Thread(target=run_call, name=f"gpuhunt {name}", daemon=True)
        thread.start()
        for _ in range(max(round(deadline_s / _POLL_S), 1)):
            thread.join(_POLL_S)
            if not thread.is_alive() or self._stop.is_set():
                break
        if errors:
            raise errors[0]
        if not results:
            raise ProviderDown(f"gpuhunt: {name}: no complete answer in time")
        return results[0]


def query_library(seller: str) -> Sequence[Any]:
    """Query the library's items of one cloud now. May hang.

    Raises:
        ProviderError: no answer, no key, or an answer that the library cannot read. Drops the library's own message: it
            may contain a URL with a key.
    """
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL)  # it logs complete errors, with their URLs
    try:
        provider_class = getattr(import_module(f"gpuhunt.providers.{seller}"), _CLASSES[seller])
        return [item for item in provider_class.from_env().get(balance_resources=False) if item.gpu_count != 0]
    except ImportError as error:
        raise ProviderDown(f"gpuhunt: this version of the library cannot query {seller}") from error
    except Exception as error:
        raise _error_text(seller, error) from None


def _error_text(seller: str, error: Exception) -> ProviderError:
    kind = type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if kind == "MissingCredsError":
        return KeyRejected(f"gpuhunt: {seller} requires a key in the environment: {error}")
    if status in (401, 403):
        return KeyRejected(f"gpuhunt: {seller} rejects the key: {status}")
    if isinstance(error, OSError):  # includes the errors of the library's HTTP client
        return ProviderDown(f"gpuhunt: {seller}: {status or kind}")
    return PayloadChanged(f"gpuhunt: {seller}: the library cannot parse the answer: {kind}")
