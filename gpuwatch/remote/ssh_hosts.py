"""Rented machines as hosts of the owner's own OpenSSH client: for one login, and as a file for `Include`.

The owner's settings, agent and keys apply, because the owner logs in. What gpuwatch sets comes first: a machine's host
counts as hostile, so its key is pinned, and no agent or display is forwarded unless the owner says so on the command
line.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from gpuwatch.atomic_file import atomic_file
from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.launches.life.launch_record import governing_watch
from gpuwatch.domain.launches.logins import host_names, required_login
from gpuwatch.ports.remote import RemoteRefused
from gpuwatch.remote.launch_keys import LaunchKeyFiles, quoted

if TYPE_CHECKING:
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.watches.watch import Watch

_HEADER = "# Machines that gpuwatch rented. gpuwatch replaces this file: put your own settings into ~/.ssh/config.\n"
_OWN_OPTIONS = {
    "ServerAliveInterval": "15",  # a machine that ended would hang forever
    "ServerAliveCountMax": "4",
    "ForwardAgent": "no",
    "ForwardX11": "no",
}


class SshHost(msgspec.Struct, frozen=True, kw_only=True):
    """One machine.

    Attributes:
        names: host names; the last one is of this launch alone.
        key_file: the private key for it, if the owner's own keys are not meant.
    """

    launch_id: str
    names: tuple[str, ...]
    address: SshAddress
    key_file: str | None = None


def machine_hosts(active: Sequence[Launch], watches: Mapping[str, Watch]) -> list[SshHost]:
    """Return the host of each active launch that can be logged in to.

    Args:
        watches: of the settings, by name.
    """
    names = host_names(active)

    def host_of(launch: Launch) -> SshHost:
        watch = governing_watch(launch, watches)
        return SshHost(
            launch_id=launch.launch_id,
            names=names[launch.launch_id],
            address=required_login(launch),
            key_file=None if watch is None or watch.launch is None else watch.launch.ssh_key,
        )

    return [host_of(launch) for launch in active if launch.launch_id in names]


class SshHosts:
    """The machines as hosts.

    Args:
        folder: contains the files of each launch, and the file of hosts.
    """

    def __init__(self, folder: Path) -> None:
        self._keys = LaunchKeyFiles(folder)
        self.file = folder / "config"

    def command(self, host: SshHost, command: Sequence[str] = (), options: Sequence[str] = ()) -> list[str]:
        """Return the client's command line.

        Args:
            command: to run there; empty: a login shell.
            options: of the client, before the host.
        """
        values = self._options(host)
        return [
            *("ssh", *(part for name, value in values for part in ("-o", f"{name}={value}"))),
            *(*options, "--", host.names[-1], *command),
        ]

    def write(self, active: Sequence[Launch], watches: Mapping[str, Watch]) -> list[SshHost]:
        """Replace the file if it differs, and forget the host keys of other launches. Raises OSError."""
        hosts = machine_hosts(active, watches)
        text = _HEADER + "".join(map(self._entry, hosts))
        if not self.file.exists() or self.file.read_text(encoding="utf-8") != text:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(self.file, mode=0o600) as part:
                part.write_text(text, encoding="utf-8")
        self._keys.unpin_others(launch.launch_id for launch in active)
        return hosts

    def _entry(self, host: SshHost) -> str:
        lines = (f"    {name} {value}\n" for name, value in self._options(host))
        return f"\nHost {' '.join(host.names)}\n{''.join(lines)}"

    def _options(self, host: SshHost) -> list[tuple[str, str]]:
        if not host.address.is_usable:
            raise RemoteRefused("it has no valid address")
        self._keys.known_hosts(host.launch_id).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        options = {"HostName": host.address.host, "Port": str(host.address.port), "User": host.address.user}
        options |= self._keys.host_key_options(host.launch_id) | _OWN_OPTIONS
        of_job = str(self._keys.private_key(host.launch_id))
        key_files = [key for key in (host.key_file, of_job) if key is not None and os.access(key, os.R_OK)]
        only = [("IdentitiesOnly", "yes")] if key_files else []
        return [*options.items(), *(("IdentityFile", quoted(Path(key))) for key in key_files), *only]


def become(argv: Sequence[str]) -> NoReturn:
    """Replace this process by a program. Raises RemoteRefused: it is not installed."""
    sys.stdout.flush()
    ignored = signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as Python sets it, and a program would inherit that
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606 - no shell reads them
    except OSError as error:
        signal.signal(signal.SIGPIPE, ignored)
        raise RemoteRefused(f"cannot run {argv[0]} ({error.strerror}); Debian: apt install openssh-client") from error
