"""The files of a launch for SSH: its key pair, and the host key that its machine must present."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from gpuwatch.atomic_file import atomic_file
from gpuwatch.ports.remote import RemoteRefused

_LAUNCH_ID = re.compile(r"[a-z2-7]{1,32}")
_KNOWN_HOSTS = "known_hosts"


class LaunchKeyFiles:
    """A folder for each launch.

    Args:
        folder: contains them; created when needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def private_key(self, launch_id: str) -> Path:
        """The private key of a launch; its public key has the suffix `.pub`. Raises RemoteRefused: no such id."""
        return self._folder_of(launch_id) / "id_ed25519"

    def known_hosts(self, launch_id: str) -> Path:
        """The file with the host key of a launch's machine; the first login creates it. Raises RemoteRefused."""
        return self._folder_of(launch_id) / _KNOWN_HOSTS

    def pin(self, launch_id: str, host_key: str) -> None:
        """Set the host key: "ssh-ed25519 AAAA…". Raises RemoteRefused, OSError."""
        file, line = self.known_hosts(launch_id), f"{_alias(launch_id)} {host_key}\n"
        if not file.exists() or file.read_text(encoding="ascii") != line:
            with atomic_file(file, mode=0o600) as part:
                part.write_text(line, encoding="ascii")

    def host_key_options(self, launch_id: str) -> dict[str, str]:
        """Options of a client that lets in the machine of this launch alone, wherever it is. Raises RemoteRefused.

        Before a key is pinned, the client pins that of the first contact.
        """
        file = self.known_hosts(launch_id)
        return {
            "HostKeyAlias": _alias(launch_id),
            "UserKnownHostsFile": quoted(file),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes" if file.exists() else "accept-new",
            "HashKnownHosts": "no",
            "UpdateHostKeys": "no",
        }

    def unpin_others(self, launch_ids: Iterable[str]) -> None:
        """Forget the host keys of all launches but these."""
        kept = set(launch_ids)
        for file in self.folder.glob(f"*/{_KNOWN_HOSTS}"):
            if file.parent.name not in kept:
                file.unlink(missing_ok=True)
                _remove_if_empty(file.parent)

    def delete(self, launch_id: str) -> None:
        """Delete all files of a launch. Raises RemoteRefused: no such id."""
        private = self.private_key(launch_id)
        for file in (private, private.with_suffix(".pub"), self.known_hosts(launch_id)):
            file.unlink(missing_ok=True)
        _remove_if_empty(private.parent)

    def _folder_of(self, launch_id: str) -> Path:
        if not _LAUNCH_ID.fullmatch(launch_id):
            raise RemoteRefused(f"{launch_id!r} is not a launch id")
        return self.folder / launch_id


def quoted(path: Path) -> str:
    """Return a path as OpenSSH's options take it, whatever characters it has."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'


def _alias(launch_id: str) -> str:
    return f"gpuwatch-{launch_id}"


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
