"""The alert channels, one file each. Other packages add theirs by the entry point `gpuwatch.notifiers`.

Such an entry point names a module or object with `INFO`, a `NotifierInfo`, and `build`, which gets its
`ChannelSettings` and the `Http` of gpuwatch and returns a `Channel`. The keys of its `[notify.NAME]` are the options
that its `INFO` declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpuwatch.plugins import Plugins
from gpuwatch.ports import ChannelSettings
from gpuwatch.ports.declarations import OptionSpec

if TYPE_CHECKING:
    from gpuwatch.ports import Channel
    from gpuwatch.ports.http import HttpClient

__all__ = ["BUILT_IN", "ChannelInfo", "ChannelSettings", "broken", "build", "info", "plugins", "stamps"]

BUILT_IN: Final = ("telegram", "email", "apprise")


class ChannelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin says of its channel."""

    name: str
    title: str  # as its owners write it
    options: tuple[OptionSpec, ...] = ()  # the keys of `[notify.NAME]`


def plugins() -> tuple[str, ...]:
    """The channels that other packages add, sorted."""
    return tuple(sorted(_PLUGINS.found()))


def info(name: str) -> ChannelInfo:
    """What a plugin says of its channel. Raises KeyError."""
    found: ChannelInfo = _PLUGINS.found()[name].target.INFO
    return found


def broken() -> Mapping[str, str]:
    """Plugins that are left out: name → why."""
    _PLUGINS.found()
    return dict(_PLUGINS.broken)


def stamps() -> tuple[str, ...]:
    """What plugins there are, in which version."""
    return tuple(f"{one.name} {one.stamp}" for one in _PLUGINS.found().values())


def build(settings: ChannelSettings, http: HttpClient) -> Channel:
    """A plugin's channel; one that cannot be built is there all the same, and refuses every alert with the reason.

    Raises:
        KeyError: there is no plugin of that name.
    """
    from gpuwatch.notifiers.isolation import IsolatedChannel, UnusableChannel  # noqa: PLC0415 for plugins alone

    target = _PLUGINS.found()[settings.name].target
    try:
        return IsolatedChannel(settings.name, target.build(settings, http))
    except Exception as error:  # a stranger's code
        return UnusableChannel(settings.name, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")


def _why_not(name: str, target: Any) -> str | None:
    told = getattr(target, "INFO", None)
    if not isinstance(told, ChannelInfo):
        return "it has no INFO that is a NotifierInfo"
    if told.name != name:
        return f"its INFO.name is {told.name!r}"
    return None if callable(getattr(target, "build", None)) else "it has no function build"


_PLUGINS = Plugins("gpuwatch.notifiers", lambda: BUILT_IN, _why_not)
