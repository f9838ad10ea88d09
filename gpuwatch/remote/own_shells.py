"""Shells on machines that gpuwatch did not rent, with the owner's own OpenSSH settings and keys.

HOST is what the owner types after `ssh`: a name of ~/.ssh/config, `user@host`, or `user@host:port`. A key that the
owner's known_hosts has must be presented; any other host is pinned at the first contact, in gpuwatch's own file, and a
changed key is refused from then on. Nothing asks: a password or a passphrase that no agent has is a refusal.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.domain.plan.machines.own_hosts import parse_own_host
from gpuwatch.remote.launch_keys import quoted
from gpuwatch.remote.ssh import CONNECT_S, OpenSshShell


def open_own_shell(text: str, key_file: Path | None, folder: Path, env: Mapping[str, str] = os.environ) -> OpenSshShell:
    """Open a shell on a machine.

    Args:
        key_file: the private key; None: the owner's agent and default keys.
        folder: holds the pinned host keys; created when needed.
        env: where the owner's agent listens.

    Raises:
        ValueError: the host is none.
        OSError: the folder cannot be created.
    """
    host = parse_own_host(text)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "accept-new",
        "UserKnownHostsFile": f"{quoted(folder / 'known_hosts')} ~/.ssh/known_hosts ~/.ssh/known_hosts2",
        "HashKnownHosts": "no",
        "UpdateHostKeys": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "ControlPath": "none",
        "RequestTTY": "no",
        "RemoteCommand": "none",
        "LogLevel": "ERROR",
        "ConnectTimeout": str(CONNECT_S),
        "ServerAliveInterval": "5",
        "ServerAliveCountMax": "3",
    }
    if key_file is not None:
        options |= {"IdentityFile": quoted(key_file), "IdentitiesOnly": "yes"}
    elif agent := env.get("SSH_AUTH_SOCK"):
        options["IdentityAgent"] = quoted(Path(agent))
    client = ["ssh", "-T", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]
    client += ["-l", host.user] if host.user else []
    client += ["-p", str(host.port)] if host.port else []
    return OpenSshShell(client, host.host)
