"""Waits until launches that are to end are over, and says of each how it goes. A daemon may run beside."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.engine.launch_reconciler import LaunchReconciler
from gpuwatch.errors import UsageError
from gpuwatch.ports import LaunchRepository

LISTS_FOR_UNKNOWN = 3  # whole lists, before nobody waits any longer for an instance that no list shows
_LOOK_EVERY_S = 1.0


class StopWaiter:
    """Follows launches to their end, and touches no others.

    Args:
        followers: by provider; one that is not there has no key.
        told: gets one line for each change.
    """

    def __init__(
        self, repository: LaunchRepository, followers: Mapping[str, LaunchReconciler], told: Callable[[str], None]
    ) -> None:
        self._repository = repository
        self._followers = followers
        self._told = told
        self._looks: Counter[str] = Counter()  # whole lists of each provider
        self._states: dict[str, str] = {}
        self._not_found: list[str] = []
        self._by_hand: list[str] = []

    def wait(self, launch_ids: Sequence[str], within_s: float) -> bool:
        """True: each end is confirmed.

        Raises:
            UsageError: there is no key for the provider of some; the others have ended.
            StoreError: the rows cannot be read.
        """
        ends_at, waiting = time.monotonic() + within_s, list(launch_ids)
        while time.monotonic() < ends_at and (waiting := [one for one in waiting if not self._settled(one)]):
            for name, follower in self._followers.items():
                self._looks[name] += follower.beat(real_now(), set(waiting))
            time.sleep(_LOOK_EVERY_S)
        if self._by_hand:
            raise UsageError("\n".join(self._by_hand))
        return not waiting and not self._not_found

    def _settled(self, launch_id: str) -> bool:
        """It is over, or nothing is gained by waiting."""
        launch = self._repository.get(launch_id)
        if launch is None:
            return True
        self._tell_state(launch)
        if launch.is_over:
            return True
        if launch.provider not in self._followers:
            self._by_hand.append(_by_hand(launch))
            return True
        if launch.instance_id is None and self._looks[launch.provider] >= LISTS_FOR_UNKNOWN:
            self._not_found.append(launch_id)
            self._told(_not_found(launch))
            return True
        return False

    def _tell_state(self, launch: Launch) -> None:
        state = launch.state.value
        if self._states.get(launch.launch_id) != state:
            self._told(f"launch {launch.launch_id}: {state}")
        self._states[launch.launch_id] = state


def _by_hand(launch: Launch) -> str:
    what = f"instance {launch.instance_id}" if launch.instance_id else "what there is"
    why = f"{launch.provider} has no key, or is not in the settings"
    return f"{why}; by hand: end {what} with the label {launch.label} there"


def _not_found(launch: Launch) -> str:
    """Its answer was lost, and no list shows it: it is ended if it turns up, but nobody can wait for that."""
    return (
        f"launch {launch.launch_id}: no list of {launch.provider} shows the label {launch.label}; it is ended if it"
        f" turns up. Look there, then: gpuwatch launches resolve {launch.launch_id} --absent, or --adopt INSTANCE"
    )
