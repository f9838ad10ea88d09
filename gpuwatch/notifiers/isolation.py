"""A plugin's channel, so that a mistake in it is that channel's failure and nobody else's."""

from __future__ import annotations

from gpuwatch.errors import DeliverLater, DeliveryError, DeliveryRefused
from gpuwatch.ports import Alert, Channel


class IsolatedChannel:
    """Passes alerts on; what the plugin raises is a DeliveryError, whatever it raised."""

    def __init__(self, name: str, inner: Channel) -> None:
        self.name = name
        self._inner = inner

    def send(self, alert: Alert) -> None:
        """Deliver once. Raises DeliverLater, DeliveryRefused."""
        try:
            self._inner.send(alert)
        except DeliveryError:
            raise
        except Exception as error:  # its text may hold a secret
            raise DeliverLater(f"{self.name}: {type(error).__name__} in its plugin") from error


class UnusableChannel:
    """Stands for a channel that cannot be built: it takes nothing, and says why."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self._why = why

    def send(self, alert: Alert) -> None:
        """Raises DeliveryRefused."""
        raise DeliveryRefused(f"{self.name}: its plugin cannot be used: {self._why}")
