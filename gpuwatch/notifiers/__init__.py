"""The alert channels, one file or folder each, named like the channel. Adding one changes no other file.

A channel's module has `INFO`, a `ChannelInfo`, and `build`, which gets its `ChannelSettings` and an `HttpClient` and
returns a `Channel`. The keys of its `[notify.NAME]` are the options of its `INFO`. Other packages add channels by the
entry point `gpuwatch.notifiers`: a module or object with the same two names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gpuwatch.errors import DeliverLater, DeliveryError, DeliveryRefused
from gpuwatch.plugins import PluginRegistry
from gpuwatch.ports import ChannelSettings
from gpuwatch.ports.declarations import ChannelInfo

if TYPE_CHECKING:
    from gpuwatch.ports import Alert, Channel
    from gpuwatch.ports.http import HttpClient

__all__ = ["ChannelInfo", "ChannelSettings", "broken", "build", "info", "names"]

_REGISTRY = PluginRegistry("gpuwatch.notifiers", ChannelInfo)
names, info, broken = _REGISTRY.names, _REGISTRY.info, _REGISTRY.broken


def build(settings: ChannelSettings, http: HttpClient) -> Channel:
    """Return the channel of one `[notify.NAME]`. If a plugin's cannot be built, it rejects every alert with the reason.

    Raises:
        KeyError: there is no channel of that name.
    """
    target = _REGISTRY.target(settings.name)
    if settings.name in _REGISTRY.built_in:
        return cast("Channel", target.build(settings, http))
    try:
        return IsolatedChannel(settings.name, target.build(settings, http))
    except Exception as error:  # a plugin may raise anything
        return UnusableChannel(settings.name, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")


class IsolatedChannel:
    """A plugin's channel: every error that it raises becomes a DeliveryError."""

    def __init__(self, name: str, inner: Channel) -> None:
        self.name = name
        self._inner = inner

    def send(self, alert: Alert) -> None:
        """Deliver once. Raises DeliverLater, DeliveryRefused."""
        try:
            self._inner.send(alert)
        except DeliveryError:
            raise
        except Exception as error:  # its text may contain a secret
            raise DeliverLater(f"{self.name}: {type(error).__name__} in its plugin") from error


class UnusableChannel:
    """Replaces a plugin's channel that cannot be built: it rejects every alert with the reason."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self._reason = reason

    def send(self, alert: Alert) -> None:
        """Raise DeliveryRefused."""
        raise DeliveryRefused(f"{self.name}: its plugin cannot be used: {self._reason}")
