"""The settings: each key declared on its field, of the file's tables that no part of `domain` declares. Frozen.

`[providers.NAME]` and `[notify.NAME]` are declared in `ports/settings.py`, with what each provider and channel adds.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema

from gpuwatch.domain.launches.rent_terms import RentDefaults
from gpuwatch.domain.plan.machines.own_hosts import OwnMachinesSettings
from gpuwatch.domain.setup.fields import Key, Line, Span, SpanFrom1s, Spec, Switch, UsdFrom0, Words, about
from gpuwatch.domain.setup.history_keep import HistoryKeep
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.owner_names import OWNER_PATTERN
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.watch_fields import check_gpus, named_gpus
from gpuwatch.home_folder import expand_home
from gpuwatch.ports import ChannelSection, ProviderSection
from gpuwatch.ports.settings import HIDDEN, parse_url
from gpuwatch.secret import Secret

DEFAULT_LISTEN = "127.0.0.1:8642"
SCOPES = ("read", "approve", "manage")
_HASH = re.compile(r"scrypt\$\d{1,2}\$\d{1,2}\$\d{1,2}\$[0-9a-f]{16,128}\$[0-9a-f]{64,128}")
_PUBLIC_URL = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:\d{1,5})?/?", re.ASCII)
_HOST = re.compile(r"\w([\w.-]*\w)?", re.ASCII)
_MIN_TOKEN_LENGTH = 16  # characters: fewer can be guessed


def _listen(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")  # noqa: TRY004 - pydantic turns ValueErrors into faults
    split_listen(value)
    return value.strip()


def _probe_listen(value: Any) -> str:
    return "" if isinstance(value, str) and not value.strip() else _listen(value)


def _public_url(value: Any) -> str:
    if not isinstance(value, str) or (value.strip() and not _PUBLIC_URL.fullmatch(value.strip())):
        raise ValueError('expected the address of the page without a path, such as "https://gpu.example.org"')
    return value.strip().rstrip("/")


def _password_hash(value: Any) -> Secret | None:
    if isinstance(value, str) and not value.strip():
        return None
    if not isinstance(value, str) or not _HASH.fullmatch(value.strip()):
        raise ValueError("expected the output of `gpuwatch web --hash-password`")
    return Secret(value.strip())


def _token(value: Any) -> Secret:
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]+", value.strip()):
        raise ValueError("expected text without spaces")
    if len(value.strip()) < _MIN_TOKEN_LENGTH:
        raise ValueError(f"expected at least {_MIN_TOKEN_LENGTH} characters, such as from: openssl rand -hex 32")
    return Secret(value.strip())


def _hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    if not all(_HOST.fullmatch(value) or _is_address(value) for value in values):
        raise ValueError('expected host names without scheme and port, such as ["gpu.example.org"]')
    return values


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _proxies(value: Any) -> Any:
    networks = [value] if isinstance(value, str) else value
    for network in networks if isinstance(networks, list | tuple) else ():
        try:
            ipaddress.ip_network(network, strict=False)
        except (ValueError, TypeError):
            raise ValueError('expected addresses or networks, such as ["10.0.0.1", "172.16.0.0/12"]') from None
    return networks


_DATABASES = ("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg")


def _database_url(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("expected text in quotes")
    scheme, separator, rest = value.strip().partition("://")
    if not separator or scheme not in _DATABASES:
        raise ValueError('expected "sqlite:///file.db" or "postgresql+psycopg://user@host/name"')
    if scheme.startswith("sqlite") and (not rest.startswith("/") or rest.split("?")[0] in {"/", "/:memory:"}):
        raise ValueError('expected a file: "sqlite:///gpuwatch.db", or "sqlite:////var/lib/gpuwatch.db"')
    return value.strip()


def _zone(value: Any) -> str:
    try:
        if isinstance(value, str):
            ZoneInfo(value)
            return value
    except (KeyError, ValueError, OSError):
        pass
    raise ValueError('expected the name of a time zone, such as "UTC" or "Europe/Berlin"')


def _heartbeat_url(value: Any) -> Secret | None:
    if isinstance(value, str) and not value.strip():
        return None
    return Secret(parse_url(value))


def _lake(value: Any) -> str:
    text = value.strip().rstrip("/") if isinstance(value, str) and value.isprintable() else None
    if text is None or (text and not re.match(r"s3://[a-z0-9][a-z0-9.-]+(/|$)|/|~/", text)):
        raise ValueError('expected "s3://bucket/prefix", or the whole path of a folder, such as "/srv/gpuwatch-lake"')
    return text


PasswordHash = Annotated[Secret | None, PlainValidator(_password_hash), WithJsonSchema(HIDDEN)]
Token = Annotated[Secret, PlainValidator(_token), WithJsonSchema(HIDDEN)]
HeartbeatUrl = Annotated[Secret | None, PlainValidator(_heartbeat_url), WithJsonSchema(HIDDEN)]
Zone = Annotated[str, BeforeValidator(_zone)]
LakePlace = Annotated[str, BeforeValidator(_lake), WithJsonSchema({"type": "string"})]
DatabaseUrl = Annotated[str, BeforeValidator(_database_url), WithJsonSchema({"type": "string"})]


class WebToken(Spec, frozen=True, kw_only=True):
    """A bearer token: its text, or the file that holds it."""

    name: Annotated[Line, about("Name in the log.")]
    token: Annotated[Token | None, about("Secret; prefer a file: token_file.")] = None
    token_file: Annotated[Line | None, about("File with the token.")] = None
    scopes: Annotated[
        tuple[Literal["read", "approve", "manage"], ...],
        about("read: all pages; approve: answer approvals; manage: stop, pause, resume, silence.", min_length=1),
    ]

    def __repr__(self) -> str:
        return f"WebToken({self.name!r}, {self.scopes})"

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """One source of the token."""
        if (table.token is None) == (table.token_file is None):
            raise ValueError("expected either token or token_file")
        return {}


class WebSettings(Spec, frozen=True, kw_only=True):
    """`[web]`."""

    enabled: Annotated[Switch, about("true: `gpuwatch run` also serves the page and the API.")] = False
    listen: Annotated[
        str,
        BeforeValidator(_listen),
        about("Address and port. An address other than loopback requires password_hash or tokens."),
    ] = DEFAULT_LISTEN
    password_hash: Annotated[PasswordHash, about("Secret. Output of `gpuwatch web --hash-password`.")] = None
    tokens: Annotated[
        tuple[WebToken, ...],
        about("Secret. Bearer tokens: { name, token or token_file, scopes }.", json_schema_extra={"writeOnly": True}),
    ] = ()
    trusted_hosts: Annotated[
        Words, AfterValidator(_hosts), about("Accepted names in the Host header, in addition to loopback.")
    ] = ("localhost",)
    trusted_proxies: Annotated[
        tuple[str, ...],
        BeforeValidator(_proxies),
        about("Addresses or networks of proxies whose X-Forwarded-* headers are trusted."),
    ] = ()
    probe_listen: Annotated[
        str,
        BeforeValidator(_probe_listen),
        about("Address and port that serve /healthz and /metrics alone, for probes by address; empty: none."),
    ] = ""
    public_url: Annotated[
        str,
        BeforeValidator(_public_url),
        about("Where you open the page, such as https://gpu.example.org: alerts link to it. Empty: no links."),
    ] = ""
    tls_certificate: Annotated[Line | None, about("PEM file with the certificate and its chain.")] = None
    tls_key: Annotated[Line | None, about("PEM file with its key.")] = None

    def __repr__(self) -> str:
        return f"WebSettings({self.enabled}, {self.listen!r})"

    @property
    def public_host(self) -> str | None:
        """The host of `public_url`."""
        return urlsplit(self.public_url).hostname

    @property
    def has_credentials(self) -> bool:
        """Whether a password or a token is configured, so that everything but /healthz requires one."""
        return bool(self.password_hash or self.tokens)


class OrchestratorSettings(Spec, frozen=True, kw_only=True):
    """`[orchestrator]`: the engine that rents the machines of jobs with `nodes` above 1."""

    tool: Annotated[
        Literal["", "dstack"], about("Engine for jobs on several machines; empty: such jobs are rejected.")
    ] = ""
    program: Annotated[str, about("Program: a name on PATH, or a path.", min_length=1, max_length=4096)] = "dstack"
    project: Annotated[
        str,
        about("Project; empty: the user's default project.", max_length=100, pattern=r"^[a-zA-Z0-9_-]*$"),
    ] = ""
    timeout_s: Annotated[SpanFrom1s, about("Timeout of one call.")] = 60.0


class RecordSettings(Spec, frozen=True, kw_only=True):
    """`[record]`: GPUs to record in addition to those of the watches."""

    gpu: Annotated[Words, AfterValidator(check_gpus), about("GPU families or names to record.")] = ()
    gpu_names: tuple[str, ...] = ()  # canonical names for `gpu`

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """The cards that its texts name."""
        return {"gpu_names": named_gpus(table.gpu)}


class HistorySettings(Spec, frozen=True, kw_only=True):
    """`[history]`: what becomes of old prices."""

    keep: Annotated[
        HistoryKeep | None,
        about("How long rows stay. A store from before this setting loses nothing until it is set."),
    ] = None
    lake: Annotated[
        LakePlace,
        about("Folder or s3://bucket/prefix to which the daemon adds Parquet files once a day; empty: none."),
    ] = ""


class LaunchingSettings(Spec, frozen=True, kw_only=True):
    """`[launch]`: settings for the launches of all watches."""

    watch_ended_s: Annotated[
        Span, about("For this long after its end, a launch is reopened if its instance is listed again.")
    ] = 604_800.0
    gather_s: Annotated[
        Span, about("How long a watch that rents waits for quotes of other providers; 0s: rent the first one.")
    ] = 3.0


class McpSettings(Spec, frozen=True, kw_only=True):
    """`[mcp]`: what agents may do (`gpuwatch mcp`)."""

    max_usd_day: Annotated[
        UsdFrom0, about("USD that agents may spend in 24 h without your approval; 0: you approve every launch.")
    ] = Decimal(0)


class WatchdogSettings(Spec, frozen=True, kw_only=True):
    """`[watchdog]`: external monitoring of gpuwatch."""

    # whoever knows it can report this daemon as healthy
    heartbeat_url: Annotated[
        HeartbeatUrl,
        about("URL to GET every healthy minute; /start and /fail are appended, as healthchecks.io expects."),
    ] = None


class SettingsKeys:
    """Keys that `Settings` holds by other fields."""

    database_url: Annotated[
        DatabaseUrl | None, about("Database of the history; default: gpuwatch.db in the user's state folder.")
    ] = None
    providers: Annotated[dict[str, ProviderSection], about("Marketplaces, by name.")] = {}  # noqa: RUF012
    notify: Annotated[dict[str, Any], about("Alert channels, by name.")] = {}  # noqa: RUF012
    defaults: Annotated[dict[str, Any], about("Keys of a watch, for all of them: [defaults.watch].")] = {}  # noqa: RUF012
    group: Annotated[dict[str, Any], about('Keys of a watch, for those with group = "NAME": [group.NAME].')] = {}  # noqa: RUF012


class Settings(Spec, frozen=True, kw_only=True):
    """All settings of gpuwatch."""

    Keys = SettingsKeys

    owner: Annotated[
        str,
        about(
            "Whose list this is, where several share a database: letters, digits, - and _; empty: the installation's.",
            max_length=16,
            pattern=OWNER_PATTERN,
        ),
    ] = ""
    timezone: Annotated[Zone, about("Time zone for screens and `active` windows.")] = "UTC"
    language: Annotated[
        Literal["en", "ru", "auto"],
        about(
            "Language of the web page, alerts, mails and chats; auto: the page follows the browser, the rest is "
            "English. Terminal, JSON and log are English."
        ),
    ] = "en"
    database_url: str  # may contain a password
    providers: dict[str, ProviderSection]  # the enabled ones
    channels: dict[str, ChannelSection]  # the configured ones
    quiet_hours: tuple[str, ...] = ()  # local windows in which only critical alerts are sent
    dry_run: Annotated[Switch, about("true: rents nothing and only reports what it would rent.")] = True
    budget: Annotated[Budget, about("Limits over all launches.")] = Budget()
    record: Annotated[RecordSettings, about("GPUs to record in addition to those of the watches.")] = RecordSettings()
    history: Annotated[HistorySettings, about("What becomes of old prices.")] = HistorySettings()
    launching: Annotated[LaunchingSettings, about("Settings for the launches of all watches."), Key("launch")] = (
        LaunchingSettings()
    )
    orchestrator: Annotated[OrchestratorSettings, about("Engine that rents the machines of multi-node jobs.")] = (
        OrchestratorSettings()
    )
    watchdog: Annotated[WatchdogSettings, about("External monitoring of gpuwatch, its machine and its network.")] = (
        WatchdogSettings()
    )
    web: Annotated[WebSettings, about("The web page and the HTTP API.")] = WebSettings()
    own_machines: Annotated[
        OwnMachinesSettings, about("Machines that gpuwatch did not rent: their GPU use as metrics, and for plan use.")
    ] = OwnMachinesSettings()
    mcp: Annotated[McpSettings, about("What agents may do.")] = McpSettings()
    watches: Annotated[tuple[Watch, ...], about("The watches."), Key("watch")] = ()
    groups: Mapping[str, Mapping[str, Any]] = {}  # all, also those without a watch: what a job inherits from each
    rent_defaults: RentDefaults = RentDefaults()  # what `[defaults.watch]` says of what a person rents without a watch
    source_file: str | None  # None: only defaults and environment
    left_out: Mapping[str, str | None] = {}  # ignored invalid watches, and their groups; only in best-effort settings
    rescue: str = ""  # why nothing is rented with these settings, which were salvaged from invalid ones

    def __repr__(self) -> str:
        return f"Settings({self.source_file!r}, {len(self.watches)} watches, providers {sorted(self.providers)})"


def rent_defaults(watch: Any, folder: Path) -> RentDefaults:
    """What `[defaults.watch]` says of a launch that has no watch. Paths are relative to the folder of the settings."""
    if watch is None:
        return RentDefaults()
    of_watch = {"disk_gb": watch.disk_gb, "on_end": watch.on_end, "keep_disk_for_s": watch.keep_disk_for}
    launch = watch.launch
    if launch is None:
        return RentDefaults(**of_watch)
    is_idle_known = launch.idle_below is not None and launch.idle_for is not None
    return RentDefaults(
        image=launch.image,
        verify=launch.verify,
        ssh_key=None if launch.ssh_key is None else str(folder / expand_home(launch.ssh_key)),
        ready_within_s=launch.ready_within,
        idle_below=launch.idle_below if is_idle_known else None,
        idle_for_s=launch.idle_for if is_idle_known else None,
        on_price_increase=launch.on_price_increase,
        **of_watch,
    )


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
