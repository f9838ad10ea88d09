"""Clouds that the library queries itself: it runs in a thread, which is abandoned after its deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderDown, ProviderError

_LOOK_S: Final = 0.05  # how often to check whether gpuwatch is stopping
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

    def run(self, name: str, work: Callable[[], Sequence[Any]], deadline_s: float) -> Sequence[Any]:
        """Return the result of `work`; passes on its errors.

        Raises:
            ProviderDown: it takes too long, an earlier call has not returned yet, or gpuwatch is stopping.
        """
        before = self._running.get(name)
        if before is not None and before.is_alive():
            raise ProviderDown(f"gpuhunt: {name} has not answered an earlier request yet")
        done: list[Sequence[Any]] = []
        failed: list[Exception] = []

        def carry_out() -> None:
            try:
                done.append(work())
            except Exception as error:  # raised again by the waiting thread
                failed.append(error)

        thread = self._running[name] = threading.Thread(target=carry_out, name=f"gpuhunt {name}", daemon=True)
        thread.start()
        for _ in range(max(round(deadline_s / _LOOK_S), 1)):
            thread.join(_LOOK_S)
            if not thread.is_alive() or self._stop.is_set():
                break
        if failed:
            raise failed[0]
        if not done:
            raise ProviderDown(f"gpuhunt: {name}: no complete answer in time")
        return done[0]


def ask(seller: str) -> Sequence[Any]:
    """Query the library's items of one cloud now. May hang.

    Raises:
        ProviderError: no answer, no key, or an answer that the library cannot read. Drops the library's own message: it
            may contain a URL with a key.
    """
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL)  # it logs complete errors, with their URLs
    try:
        home = getattr(import_module(f"gpuhunt.providers.{seller}"), _CLASSES[seller])
        return [item for item in home.from_env().get(balance_resources=False) if item.gpu_count != 0]
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
