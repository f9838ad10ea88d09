"""The age of a launch by two clocks: no change of the wall clock may let an instance run longer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from gpuwatch.domain.launches.launch import Launch, LaunchState

ELSEWHERE_FOR = timedelta(minutes=5)  # how long a request of another process may be in flight


class LaunchClock:
    """Computes the age of launches.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._first_seen_s: dict[tuple[str, LaunchState], float] = {}  # monotonic: when it was first seen in this state

    def at_least(self, launch: Launch, now: datetime) -> datetime:
        """Return the wall clock or a later time: a clock that stepped back must not let an instance run longer."""
        running_since = launch.running_at if launch.state is LaunchState.RUNNING else None
        started_at = running_since or launch.requested_at or launch.intended_at
        tick_s = self._monotonic()
        seen_s = self._first_seen_s.setdefault((launch.launch_id, launch.state), tick_s)
        return max(now, started_at + timedelta(seconds=tick_s - seen_s))

    def since_order(self, launch: Launch, now: datetime) -> timedelta:
        """Return the time since its order."""
        return self.at_least(launch, now) - (launch.requested_at or launch.intended_at)

    def is_lost(self, launch: Launch, began_at: datetime | None, now: datetime) -> bool:
        """Whether a request that this process did not send is over: no process waits for its answer.

        It is older than this process, which began at `began_at`, or too old to be in flight in another one.
        """
        requested_at = launch.requested_at or launch.intended_at
        return began_at is None or requested_at < began_at or self.since_order(launch, now) > ELSEWHERE_FOR

    def forget(self, launch: Launch) -> None:
        """Forget a launch that is over."""
        self._first_seen_s = {key: value for key, value in self._first_seen_s.items() if key[0] != launch.launch_id}


def must_end_at(launch: Launch) -> datetime | None:
    """Return when it ends if nothing else happens; None: never."""
    if launch.state is LaunchState.RUNNING and launch.running_at and launch.max_runtime_s is not None:
        return launch.running_at + timedelta(seconds=launch.max_runtime_s)
    if launch.state is LaunchState.STARTING and launch.ready_within_s is not None:
        return (launch.requested_at or launch.intended_at) + timedelta(seconds=launch.ready_within_s)
    return None
