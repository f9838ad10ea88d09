"""Where the SSH servers of instances listen, by their provider's list; asked at most every few seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from gpuwatch.domain.launches.launch import Launch
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Instance, Launcher
from gpuwatch.ports.remote import SshAddress

log = logging.getLogger(__name__)

ASK_EVERY_S = 5.0


class InstanceAddresses:
    """Asked once per run: then its address is stored.

    Args:
        launchers: by provider.
        monotonic: seconds.
    """

    def __init__(self, launchers: Mapping[str, Launcher], monotonic: Callable[[], float]) -> None:
        self._launchers = launchers
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._listed: dict[str, tuple[float, Sequence[Instance]]] = {}

    def __call__(self, launch: Launch) -> SshAddress | None:
        """The address of a launch's instance; None: not known yet."""
        for one in self._instances(launch.provider):
            if one.instance_id == launch.instance_id and one.ssh_host is not None:
                return SshAddress(host=one.ssh_host, port=one.ssh_port or 22, user=one.ssh_user or "root")
        return None

    def _instances(self, provider: str) -> Sequence[Instance]:
        launcher = self._launchers.get(provider)
        if launcher is None:
            return ()
        with self._lock:
            at_s, found = self._listed.get(provider, (-ASK_EVERY_S, ()))
            if self._monotonic() - at_s >= ASK_EVERY_S:
                try:
                    found = launcher.list_instances()
                except ProviderError as error:
                    log.info("%s: addresses of instances are not known yet: %s", provider, error)
                self._listed[provider] = self._monotonic(), found
            return found
