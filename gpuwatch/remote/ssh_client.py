"""Calls the system's `ssh` on a machine that counts as hostile.

Its address cannot become an option of the client, and nothing of this machine is used: no configuration, agent,
forwarding or shared connection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

CONNECT_S = 10
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?")
_REJECTION_MESSAGES = ("permission denied", "too many authentication failures", "load key", "no such identity")
_CLIENT_OPTIONS = (
    "BatchMode=yes",
    "GlobalKnownHostsFile=/dev/null",
    "UpdateHostKeys=no",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "PreferredAuthentications=publickey",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "ControlPath=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
    f"ConnectTimeout={CONNECT_S}",
)


def ssh_command(key_file: str, user: str, port: int, options: Sequence[str], client: str = "ssh") -> list[str]:
    """Return the client's arguments before `--`, host and command; `options` set how the host key is checked."""
    option_args = [part for option in (*_CLIENT_OPTIONS, *options) for part in ("-o", option)]
    return [client, "-F", "none", "-T", "-i", key_file, "-l", user, "-p", str(port), *option_args]


def is_address(host: str, port: int, user: str = "root") -> bool:
    """Whether it may be passed to a client."""
    return bool(_HOST.fullmatch(host) and 0 < port < 65_536 and _USER.fullmatch(user))


def is_rejection(message: str) -> bool:
    """Whether the machine answered, but rejected this key."""
    return any(pattern in message.lower() for pattern in _REJECTION_MESSAGES)
