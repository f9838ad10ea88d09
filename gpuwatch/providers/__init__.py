"""GPU marketplaces. One module or folder each, named as the provider; nothing else is edited to add one.

A provider's module holds `INFO`, a `ProviderInfo`, and `build`, which gets its settings and `Tools` and returns an
`Adapter`. It is imported on the start-up path to read `INFO`, so what is heavy (wire structs, tables) waits until
`build` is called. Other packages add theirs by the entry point `gpuwatch.providers`: a module or object with the same
two names. One that cannot be used is left out with a warning; none may take the name of one of ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpuwatch.plugins import Plugins
from gpuwatch.ports import Now, ProviderSettings
from gpuwatch.ports.declarations import Adapter, ProviderInfo, Tools

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient

__all__ = ["Adapter", "ProviderInfo", "Tools", "broken", "build", "build_bare", "info", "names", "stamps"]


def names() -> tuple[str, ...]:
    """All providers, sorted: the public modules and folders of this package, and plugins."""
    return tuple(sorted({*_built_in(), *_PLUGINS.found()}))


def info(name: str) -> ProviderInfo:
    """What is known of a provider.

    Raises:
        KeyError: there is none of that name.
    """
    return cast(ProviderInfo, _home(name).INFO)


def broken() -> Mapping[str, str]:
    """Plugins that are left out: name → why."""
    _PLUGINS.found()
    return dict(_PLUGINS.broken)


def stamps() -> tuple[str, ...]:
    """What plugins there are, in which version: settings that were judged without them are judged again."""
    return tuple(f"{one.name} {one.stamp}" for one in _PLUGINS.found().values())


def build(
    settings: ProviderSettings,
    http: HttpClient,
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
    stop = stop or threading.Event()
    tools = Tools(http=http, now=now, monotonic=monotonic, sleep=sleep or _until(stop), stop=stop)
    if settings.name in _built_in():
        return build_bare(settings, tools)
    return _foreign(settings, tools)


def build_bare(settings: ProviderSettings, tools: Tools) -> Adapter:
    """The adapter as its module builds it: a plugin's mistakes come out as they are. For tests. Raises KeyError."""
    return cast(Adapter, _home(settings.name).build(settings, tools))


def _foreign(settings: ProviderSettings, tools: Tools) -> Adapter:
    """A plugin's adapter: whatever goes wrong in it is its own failure."""
    from gpuwatch.providers.toolkit.isolation import isolated, unusable_adapter  # noqa: PLC0415 for plugins alone

    told = info(settings.name)
    try:
        return isolated(build_bare(settings, tools))
    except Exception as error:  # a stranger's code
        return unusable_adapter(told, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")


def _home(name: str) -> Any:
    """The module, or a plugin's object. Raises KeyError."""
    if name in _built_in():
        return import_module(f"{__name__}.{name}")
    return _PLUGINS.found()[name].target


@cache
def _built_in() -> frozenset[str]:
    found = {path.stem for path in Path(__file__).parent.iterdir() if path.suffix == ".py" or _is_package(path)}
    return frozenset(name for name in found if not name.startswith("_") and name != "toolkit")


def _why_not(name: str, target: Any) -> str | None:
    told = getattr(target, "INFO", None)
    if not isinstance(told, ProviderInfo):
        return "it has no INFO that is a ProviderInfo"
    if told.name != name:
        return f"its INFO.name is {told.name!r}"
    return None if callable(getattr(target, "build", None)) else "it has no function build"


def _until(stop: threading.Event) -> Callable[[float], None]:
    def wait(seconds: float) -> None:
        stop.wait(seconds)

    return wait


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").is_file()


_PLUGINS = Plugins("gpuwatch.providers", _built_in, _why_not)
