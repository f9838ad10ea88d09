"""Log in to a rented machine with the owner's SSH client, once or by a file of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.bootstrap.job_building import refresh_ssh_hosts, ssh_hosts
from gpuwatch.domain.launches.logins import launch_called, required_login
from gpuwatch.errors import GpuwatchError
from gpuwatch.remote.ssh_hosts import machine_hosts
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.remote.ssh_hosts import SshHost
    from gpuwatch.settings import Settings


def login_command(settings: Settings, name: str, command: Sequence[str] = (), options: Sequence[str] = ()) -> list[str]:
    """Return the command line that logs in to a launch.

    Args:
        name: its id, or its watch, job or host if only one of them runs.
        command: to run there; empty: a login shell.
        options: of the SSH client.

    Raises:
        UsageError: there is no such launch, or it cannot be logged in to.
        ProviderStateUnknown: where to log in is not known yet.
        StoreError: the launches cannot be read.
    """
    launches = _launches(settings)
    launch = launch_called(launches, name)
    required_login(launch)
    active = [one for one in launches if not one.is_over]
    refresh_ssh_hosts(settings, lambda: active)
    (host,) = machine_hosts([launch], _watches(settings))
    return ssh_hosts(settings).command(host, command, options)


class HostFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file of hosts, as written.

    Attributes:
        left_out: why an active launch is not in it, one line each.
    """

    path: Path
    hosts: Sequence[SshHost]
    left_out: Sequence[str]


def write_host_file(settings: Settings) -> HostFile:
    """Write the file of hosts for OpenSSH; a daemon on this machine then keeps it up to date.

    Raises:
        StoreError: the launches cannot be read.
        OSError: the file cannot be written.
    """
    active = [launch for launch in _launches(settings) if not launch.is_over]
    hosts = ssh_hosts(settings)
    written = hosts.write(active, _watches(settings))
    return HostFile(path=hosts.file, hosts=written, left_out=list(filter(None, map(_why_left_out, active))))


def _launches(settings: Settings) -> list[Launch]:
    with open_store_read_only(settings) as store:
        return SqlLaunchRepository(store).own()


def _watches(settings: Settings) -> dict[str, Watch]:
    return {watch.name: watch for watch in settings.watches}


def _why_left_out(launch: Launch) -> str | None:
    try:
        required_login(launch)
    except GpuwatchError as error:
        return str(error)
    return None
