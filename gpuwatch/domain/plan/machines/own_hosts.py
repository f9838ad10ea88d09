"""The owner's own machines as they are written: a name of ~/.ssh/config, `user@host`, or `user@host:port`. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator

from gpuwatch.domain.setup.fields import Line, SpanFrom1s, Spec, Usd, about

EXPECTED_HOST: Final = 'expected a host as for ssh, such as "gpu1", "root@10.0.0.7" or "root@10.0.0.7:2222"'
_HOST: Final = re.compile(
    r"(?:(?P<user>[A-Za-z_][A-Za-z0-9_.-]{0,31})@)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:]{2,45})\]|(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


class OwnHost(NamedTuple):
    """A machine. None: as the owner's OpenSSH settings say."""

    host: str
    user: str | None
    port: int | None


def parse_own_host(text: str) -> OwnHost:
    """Parse a host; nothing that a client takes for an option is one. Raises ValueError."""
    found = _HOST.fullmatch(text.strip())
    port = int(found["port"]) if found and found["port"] else None
    if found is None or (port is not None and not 0 < port < 65_536):
        raise ValueError(f"{EXPECTED_HOST}, not {text[:60]!a}")
    return OwnHost(found["six"] or found["name"], found["user"], port)


def check_own_host(text: str) -> str:
    """The text of a host. Raises ValueError: it is none."""
    parse_own_host(text)
    return text.strip()


class OwnMachine(Spec, frozen=True, kw_only=True):
    """A machine that gpuwatch did not rent."""

    host: Annotated[
        Line,
        AfterValidator(check_own_host),
        about("As for ssh: a name of ~/.ssh/config, user@host, or user@host:port."),
    ]
    usd_gpu_hour: Annotated[
        Usd | None, about("Its cost in USD per GPU-hour. Default: the market's lowest price of its GPU.")
    ] = None


class OwnMachinesSettings(Spec, frozen=True, kw_only=True):
    """`[own_machines]`: machines that gpuwatch did not rent, whose GPUs the daemon reads over SSH."""

    machines: Annotated[tuple[OwnMachine, ...], about("The machines: { host, usd_gpu_hour }.", max_length=256)] = ()
    ssh_key: Annotated[Line | None, about("Private key. Default: the daemon user's own keys and agent.")] = None
    every_s: Annotated[SpanFrom1s, about("Interval at which their GPUs are read.")] = 60.0

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """Each machine is named once."""
        hosts = [machine.host for machine in table.machines]
        if len(set(hosts)) < len(hosts):
            raise ValueError("machines: a host is named twice")
        return {}
