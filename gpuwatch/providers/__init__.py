"""GPU marketplaces: one module or folder each, named after the provider. Adding one edits no other file.

A provider's module contains `INFO`, a `ProviderInfo`, and `build`, which gets its settings and `Tools` and returns an
`Adapter`. Every start imports it to read `INFO`: a folder's other modules, and libraries, are imported by `build`.
Other packages add theirs by the entry point `gpuwatch.providers`: a module or object with the same two names. One that
cannot be used is skipped with a warning; none may have the name of a built-in provider.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gpuwatch.plugins import PluginRegistry
from gpuwatch.ports import Now, ProviderSettings
from gpuwatch.ports.declarations import Adapter, ProviderInfo, Tools

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient

__all__ = ["Adapter", "ProviderInfo", "Tools", "broken", "build", "build_unisolated", "build_with", "info", "names"]

_REGISTRY = PluginRegistry("gpuwatch.providers", ProviderInfo)
names, info, broken = _REGISTRY.names, _REGISTRY.info, _REGISTRY.broken


def build(
    settings: ProviderSettings,
    http: HttpClient,
    now: Now,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None] | None = None,
    stop: threading.Event | None = None,
) -> Adapter:
    """Build the adapter of one `[providers.NAME]`. Sends nothing yet.

    Args:
        monotonic: seconds, for intervals and deadlines.
        sleep: for the waits between retries; None: waits on `stop`.
        stop: ends all waiting when set.

    Raises:
        KeyError: there is no provider of that name.
    """
    stop = stop or threading.Event()
    return build_with(settings, Tools(http=http, now=now, monotonic=monotonic, sleep=sleep or _waiter(stop), stop=stop))


def build_with(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Like `build`; an error in a plugin affects only that provider. Raises KeyError."""
    if settings.name in _REGISTRY.built_in:
        return build_unisolated(settings, tools)
    from gpuwatch.providers.toolkit.isolation import isolate, unusable_adapter  # noqa: PLC0415 - only for plugins

    declared = info(settings.name)
    try:
        return isolate(build_unisolated(settings, tools))
    except Exception as error:  # a plugin may raise anything
        return unusable_adapter(declared, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")


def build_unisolated(settings: ProviderSettings, tools: Tools) -> Adapter:
    """Build the adapter without isolating errors of a plugin. For tests. Raises KeyError."""
    return cast(Adapter, _REGISTRY.target(settings.name).build(settings, tools))


def _waiter(stop: threading.Event) -> Callable[[float], None]:
    def wait(seconds: float) -> None:
        stop.wait(seconds)

    return wait
