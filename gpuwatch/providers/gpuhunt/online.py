"""Clouds that the library queries itself: it runs in a thread, and after its deadline nobody waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderDown, ProviderError

_LOOK_S: Final = 0.05  # how often it is seen whether gpuwatch is stopping
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
    """Runs what may hang. What hangs is left behind: its thread ends with the process, and it is not begun again.

    Args:
        stop: ends every wait when set.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._running: dict[str, threading.Thread] = {}

    def run(self, name: str, work: Callable[[], Sequence[Any]], deadline_s: float) -> Sequence[Any]:
        """What `work` returns; what it raises passes.

        Raises:
            ProviderDown: it takes longer, or still has not come back from the last time, or gpuwatch is stopping.
        """
        before = self._running.get(name)
        if before is not None and before.is_alive():
            raise ProviderDown(f"gpuhunt: {name} still has not answered an earlier request")
        done: list[Sequence[Any]] = []
        failed: list[Exception] = []

        def carry_out() -> None:
            try:
                done.append(work())
            except Exception as error:  # it is raised where it is waited for
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
            raise ProviderDown(f"gpuhunt: {name}: no whole answer in time")
        return done[0]


def ask(seller: str) -> Sequence[Any]:
    """The library's items of one cloud, queried now. May hang.

    Raises:
        ProviderError: no answer, no key, or none that the library can read. The library's own message is dropped: it
            may contain an address with a key.
    """
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL)  # it logs whole failures, with their addresses
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
        return KeyRejected(f"gpuhunt: {seller} wants a key in the environment: {error}")
    if status in (401, 403):
        return KeyRejected(f"gpuhunt: {seller} refuses the key: {status}")
    if isinstance(error, OSError):  # what the library's HTTP client raises is one
        return ProviderDown(f"gpuhunt: {seller}: {status or kind}")
    return PayloadChanged(f"gpuhunt: {seller}: an answer that the library does not understand: {kind}")
