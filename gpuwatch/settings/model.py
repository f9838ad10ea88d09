"""The settings for the rest of gpuwatch, `[web]` among them: plain, frozen, already validated."""

from __future__ import annotations

import ipaddress

import msgspec

from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.ports import ChannelSection, ProviderSection
from gpuwatch.secret import Secret

DEFAULT_LISTEN = "127.0.0.1:8642"
SCOPES = ("read", "approve", "manage")


class WebToken(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token: its text, or the file that holds it."""

    name: str
    token: Secret | None = None
    token_file: str | None = None
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"WebToken({self.name!r}, {self.scopes})"


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[web]`."""

    enabled: bool = False
    listen: str = DEFAULT_LISTEN
    password_hash: Secret | None = None
    tokens: tuple[WebToken, ...] = ()
    trusted_hosts: tuple[str, ...] = ("localhost",)
    trusted_proxies: tuple[str, ...] = ()  # addresses or networks
    tls_certificate: str | None = None  # PEM file
    tls_key: str | None = None  # PEM file

    def __repr__(self) -> str:
        return f"WebSettings({self.enabled}, {self.listen!r})"

    @property
    def has_credentials(self) -> bool:
        """Whether a password or a token is configured, so that everything but /healthz requires one."""
        return bool(self.password_hash or self.tokens)


class OrchestratorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The engine that rents the machines of multi-node jobs. `tool` empty: none."""

    tool: str = ""
    program: str = "dstack"
    project: str = ""
    timeout_s: float = 60.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. `providers` holds the enabled ones, `channels` the configured ones.

    `database_url` may contain a password.
    """

    timezone: str
    database_url: str
    dry_run: bool
    budget: Budget
    providers: dict[str, ProviderSection]
    record_gpus: tuple[str, ...]  # canonical names
    channels: dict[str, ChannelSection]
    watches: tuple[Watch, ...]
    quiet_hours: tuple[str, ...] = ()  # local windows in which only critical alerts are sent
    watch_ended_s: float = 604_800.0  # for this long after its end, a launch is reopened if its instance is listed
    gather_s: float = 3.0  # how long a watch that rents waits for quotes of its other providers; 0: the first one wins
    orchestrator: OrchestratorSettings = OrchestratorSettings()
    heartbeat_url: Secret | None = None  # whoever knows it can report this daemon as healthy
    web: WebSettings = WebSettings()
    source_file: str | None  # None: only defaults and environment
    left_out: tuple[str, ...] = ()  # ignored invalid watches; only in best-effort settings
    rescue: str = ""  # why nothing is rented with these settings, which were salvaged from invalid ones

    def __repr__(self) -> str:
        return f"Settings({self.source_file!r}, {len(self.watches)} watches, providers {sorted(self.providers)})"


# --- where the web page listens ---------------------------------------------------------------------------------------


def split_listen(text: str) -> tuple[str, int]:
    """Parse `127.0.0.1:8642`, `localhost:8642` or `[::1]:8642` into host and port. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # an IPv6 address without its brackets: the port is ambiguous
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError('expected an address and a port, such as "127.0.0.1:8642" or "[::1]:8642"')
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen_fault(web: WebSettings) -> str | None:
    """Why the server may not listen there; None: it may."""
    if is_loopback(split_listen(web.listen)[0]) or web.has_credentials:
        return None
    return (
        f"{web.listen} is reachable from other machines: expected a loopback address, such as "
        f'"{DEFAULT_LISTEN}", or web.password_hash (gpuwatch web --hash-password) or web.tokens'
    )
