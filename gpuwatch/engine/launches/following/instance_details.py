"""What a provider states about one instance of a launch: the address of its SSH server, and the end of its contract."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.engine.launches.guarding.instance_lists import instance_by_id
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Instance, Launcher

log = logging.getLogger(__name__)

LIST_EVERY_S = 5.0


class InstanceAddresses:
    """Returns SSH addresses; lists the instances at most every few seconds. The caller stores the address of a run.

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
        """Return the address of a launch's instance; None: not known yet."""
        for instance in self._instances(launch.provider):
            if instance.instance_id == launch.instance_id:
                return instance.ssh
        return None

    def _instances(self, provider: str) -> Sequence[Instance]:
        launcher = self._launchers.get(provider)
        if launcher is None:
            return ()
        with self._lock:
            at_s, found = self._listed.get(provider, (-LIST_EVERY_S, ()))
            if self._monotonic() - at_s >= LIST_EVERY_S:
                try:
                    found = launcher.list_instances()
                except ProviderError as error:
                    log.info("%s: addresses of instances are unknown so far: %s", provider, error)
                self._listed[provider] = self._monotonic(), found
            return found


class ContractEnds:
    """Returns when the provider itself ends an instance; used before a launch is extended.

    Args:
        launchers: by provider.
    """

    def __init__(self, launchers: Mapping[str, Launcher]) -> None:
        self._launchers = launchers

    def __call__(self, launch: Launch) -> datetime | None:
        """Return that time; None: the provider ends nothing by itself, or does not state it now."""
        launcher = self._launchers.get(launch.provider)
        if launcher is None or launch.instance_id is None:
            return None
        try:
            found = instance_by_id(launcher, launch.instance_id)
        except ProviderError as error:
            log.info("%s: the end of the contract is unknown: %s", launch.provider, error)
            return None
        return None if found is None else found.ends_at
