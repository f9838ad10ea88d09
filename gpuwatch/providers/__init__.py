"""GPU marketplaces. One module or folder each, named as the provider; nothing else is edited to add one.

A provider's module holds `INFO`, a `ProviderInfo`, and `build`, with the signature of this module's `build`. It is
imported on the start-up path to read `INFO`, so what is heavy (wire structs, tables) waits until `build` is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gpuwatch.adapting import Adapter, ProviderInfo, Tools
from gpuwatch.ports import Now, ProviderSettings

if TYPE_CHECKING:
    from gpuwatch.net import Http

__all__ = ["Adapter", "ProviderInfo", "Tools", "build", "info", "names"]


def names() -> tuple[str, ...]:
    """All providers, sorted: the public modules and folders of this package."""
    found = {path.stem for path in Path(__file__).parent.iterdir() if path.suffix == ".py" or _is_package(path)}
    return tuple(sorted(name for name in found if not name.startswith("_")))


@cache
def info(name: str) -> ProviderInfo:
    """What is known of a provider.

    Raises:
        KeyError: there is none of that name.
    """
    if name not in names():
        raise KeyError(name)
    return cast(ProviderInfo, import_module(f"{__name__}.{name}").INFO)


def build(
    settings: ProviderSettings,
    http: Http,
    now: Now,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None] | None = None,
    stop: threading.Event | None = None,
) -> Adapter:
    """An adapter for one `[providers.NAME]`. Nothing is asked yet.

    Args:
        monotonic: seconds, for intervals and deadlines.
        sleep: for the waits between retries; None: waits on `stop`.
        stop: ends all waiting when set.

    Raises:
        KeyError: there is no provider of that name.
    """
    info(settings.name)
    stop = stop or threading.Event()
    tools = Tools(http=http, now=now, monotonic=monotonic, sleep=sleep or _until(stop), stop=stop)
    return cast(Adapter, import_module(f"{__name__}.{settings.name}").build(settings, tools))


def _until(stop: threading.Event) -> Callable[[float], None]:
    def wait(seconds: float) -> None:
        stop.wait(seconds)

    return wait


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").is_file()
