"""Asks for one instance by its id, where the provider has such an answer to give."""

from __future__ import annotations

import logging

import msgspec

from gpuwatch.errors import KeyRejected, PayloadChanged
from gpuwatch.ports import Instance, InstanceLookup, Launcher

log = logging.getLogger(__name__)


class LookupAnswer(msgspec.Struct, frozen=True):
    """What the provider says about one id.

    Attributes:
        is_known: it said something; else it has no such answer, and its list alone counts.
        instance: None: it is gone, if anything is known.
    """

    is_known: bool
    instance: Instance | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the provider said so."""
        return self.is_known and self.instance is None


def look_up(launcher: Launcher, instance_id: str) -> LookupAnswer:
    """Ask for it. An answer in no known form (a 404 of a server without that address) says nothing either way, and so
    does a key that may list instances but not ask for one: both are as if the provider had no such answer.

    Raises:
        ProviderError: no answer; the next one counts.
    """
    if not isinstance(launcher, InstanceLookup):
        return LookupAnswer(False)
    try:
        return LookupAnswer(True, launcher.get(instance_id))
    except (PayloadChanged, KeyRejected) as error:
        log.warning("instance %s: cannot be looked up by its id; using the list only: %s", instance_id, error)
        return LookupAnswer(False)
