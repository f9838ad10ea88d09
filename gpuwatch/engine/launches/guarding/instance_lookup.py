"""Looks up one instance by its id, if the provider supports that."""

from __future__ import annotations

import logging

import msgspec

from gpuwatch.errors import KeyRejected, PayloadChanged
from gpuwatch.ports import Instance, InstanceLookup, InstanceState, Launcher

log = logging.getLogger(__name__)


class LookupAnswer(msgspec.Struct, frozen=True):
    """The provider's answer about one id.

    Attributes:
        is_known: there was an answer; if False, only the list counts.
        instance: None: the instance is gone, if `is_known`.
        ended: it is gone, and the provider states how it ended.
    """

    is_known: bool
    instance: Instance | None = None
    ended: Instance | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the provider states that it is gone."""
        return self.is_known and self.instance is None


def look_up(launcher: Launcher, instance_id: str) -> LookupAnswer:
    """Look it up. Two failures count as a missing lookup: an answer in an unknown form, such as a 404 of a server
    without that address, and a key that can list instances but not look one up.

    Raises:
        ProviderError: no answer; try again.
    """
    if not isinstance(launcher, InstanceLookup):
        return LookupAnswer(False)
    try:
        found = launcher.get(instance_id)
    except (PayloadChanged, KeyRejected) as error:
        log.warning("instance %s: cannot be looked up by its id; using the list only: %s", instance_id, error)
        return LookupAnswer(False)
    if found is not None and found.state is InstanceState.ENDED:
        return LookupAnswer(True, ended=found)
    return LookupAnswer(True, found)
