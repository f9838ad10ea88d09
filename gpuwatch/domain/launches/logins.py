"""Who can log in to which launch, and the names that an SSH client knows its machine by. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.errors import ProviderStateUnknown, ResourceNotFound, UsageError

HOST_PREFIX: Final = "gpuwatch-"
_NOT_OF_HOST_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")


def login_of(launch: Launch) -> SshAddress | None:
    """Return where to log in now; None: its machine does not run, or its provider has not stated an address."""
    is_running = launch.state is LaunchState.RUNNING and launch.condition is None
    return launch.ssh if is_running else None


def required_login(launch: Launch) -> SshAddress:
    """Return where to log in now.

    Raises:
        UsageError: that is over, or never comes.
        ProviderStateUnknown: it may come.
    """
    if (address := login_of(launch)) is not None:
        return address
    launch_id = launch.launch_id
    if launch.is_over:
        raise UsageError(
            f"launch {launch_id} is over ({launch.end_reason or launch.state.value}); see: gpuwatch launches"
        )
    if launch.state is LaunchState.STOPPING:
        raise UsageError(f"launch {launch_id} is being ended; see: gpuwatch launches")
    if launch.is_by_command:
        raise UsageError(f"launch {launch_id}: your command rented its machine; gpuwatch does not know where to log in")
    if launch.condition is not None:
        raise ProviderStateUnknown(
            f"launch {launch_id} does not run now ({launch.condition.value}); try again when it runs"
        )
    if launch.state is not LaunchState.RUNNING:
        raise ProviderStateUnknown(f"launch {launch_id} is {launch.state.value}; try again when it is running")
    raise ProviderStateUnknown(
        f"launch {launch_id}: {launch.provider} has not stated where to log in to instance {launch.instance_id}; "
        "try again in a minute, or look at the provider"
    )


def host_names(launches: Sequence[Launch]) -> Mapping[str, tuple[str, ...]]:
    """Return the host names by launch id, of each launch that can be logged in to.

    The last one is of the launch itself, and stays. Before it stands one of the watch or job, if only one runs.
    """
    reachable = [launch for launch in launches if login_of(launch) is not None]
    shared = Counter(map(_short_name, reachable))
    return {
        launch.launch_id: tuple(
            HOST_PREFIX + name
            for name in (_short_name(launch), launch.launch_id)
            if name and (name == launch.launch_id or shared[name] == 1)
        )
        for launch in reachable
    }


def launch_called(launches: Sequence[Launch], name: str) -> Launch:
    """Return the launch with this id, or the only active one of the watch or job with this name, or of this host name.

    The name of a recurring job stands for its run that is active.

    Raises:
        ResourceNotFound: there is none.
        UsageError: several of its launches are active, or none.
    """
    name = name.removeprefix(HOST_PREFIX)
    for launch in launches:
        if launch.launch_id == name:
            return launch
    named = [one for one in launches if name in {one.watch, one.purpose.job, one.purpose.series, _short_name(one)}]
    active = [one for one in named if not one.is_over]
    found = [one for one in active if login_of(one) is not None] or active
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name!r} has {len(found)} active launches: {', '.join(one.launch_id for one in found)}")
    if named:
        raise UsageError(f"{name!r} has no active launch; see: gpuwatch launches")
    raise ResourceNotFound(f"there is no launch {name!r}; see: gpuwatch launches")


def _short_name(launch: Launch) -> str:
    """Return the name of its watch or job with the characters that a host name has; empty: none is left."""
    purpose = launch.purpose
    return _NOT_OF_HOST_NAMES.sub("-", purpose.job or purpose.watch).strip(".-")
