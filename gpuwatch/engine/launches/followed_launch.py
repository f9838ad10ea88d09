"""What this process knows about a followed launch and no row stores; a restart begins without it.

`FollowedLaunches` has one record for each launch at a provider, created when a fact is first noted and dropped as a
whole when the launch is over.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from gpuwatch.domain.launches.instances.absence import AbsenceEvidence, BalanceReading
from gpuwatch.domain.launches.instances.instance_checks import MeasuredInstance
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.ports.remote import InstanceUnreachable, LoginRefused


class RefusedIncrease(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that the policy rejects: the instance ends before it applies."""

    effective_at: datetime | None
    words: str


class VerificationProgress(msgspec.Struct):
    """The state of the verification of an instance.

    Written by one thread at a time: the poll, or the probe it started.
    """

    probing: bool = False
    found: MeasuredInstance | InstanceUnreachable | LoginRefused | None = None
    words: str = "it has no SSH port"
    answers: bool = False
    refused_at: datetime | None = None
    best_mbps: float | None = None
    measured: int = 0
    done: bool = False


class FollowedLaunch(msgspec.Struct, kw_only=True):
    """The facts about one launch. Seconds are monotonic."""

    first_seen_s: dict[LaunchState, float] = {}  # when it was first seen in a state

    # its absence
    is_found: bool = False  # a list or a lookup has shown it
    is_lookup_gone: bool = False  # the provider last reported its id as gone
    evidence: AbsenceEvidence | None = None
    first_balance: BalanceReading | None = None
    balance_read_s: float | None = None
    collected_s: float | None = None  # the latest independent evidence

    # answers that contradict each other
    contradicted_since_s: float | None = None
    contradictions: int = 0

    # its end
    stopping_since_s: float | None = None
    acknowledged_s: float | None = None  # the provider accepted a destroy, the latest time
    lists_after_destroy: int = 0  # consecutive ones without it
    is_halt_sent: bool = False  # a stop that keeps its disk, the first time

    # what the guard found
    verification: VerificationProgress = msgspec.field(default_factory=VerificationProgress)
    refused_increase: RefusedIncrease | None = None  # kept when the proposal leaves the list
    waste_reported_at: datetime | None = None
    waste_recovered_at: datetime | None = None

    def restart_absence(self) -> None:
        """Forget what spoke for its absence, because something shows it."""
        self.evidence, self.is_lookup_gone, self.lists_after_destroy = None, False, 0
        self.first_balance = self.balance_read_s = self.collected_s = None


class FollowedLaunches:
    """The followed launches at one provider. Their reconciler and their guard share it, each on its thread."""

    def __init__(self) -> None:
        self._by_id: dict[str, FollowedLaunch] = {}

    def of(self, launch: Launch) -> FollowedLaunch:
        """Return the record of a launch."""
        return self._by_id.setdefault(launch.launch_id, FollowedLaunch())

    def drop(self, launch: Launch) -> None:
        """Drop a launch that is over."""
        self._by_id.pop(launch.launch_id, None)

    def keep_only(self, launch_ids: Collection[str]) -> None:
        """Drop all others, which another process has ended, but those that a list may still show."""
        for launch_id, one in list(self._by_id.items()):
            if launch_id not in launch_ids and not one.contradictions:
                self._by_id.pop(launch_id, None)
