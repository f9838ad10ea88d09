"""The pydantic schema of the settings file."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, WithJsonSchema, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from gpuwatch import providers
from gpuwatch.domain.market.money import CommissionMode
from gpuwatch.domain.setup.durations import DURATION_PATTERN
from gpuwatch.domain.setup.fields import Line, Span, SpanFrom1s, Switch, Table, Whole, Words, number, seconds
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.watch_fields import check_gpus
from gpuwatch.ports.declarations import parse_token, parse_url
from gpuwatch.secret import Secret
from gpuwatch.settings.model import DEFAULT_LISTEN, WebSettings, WebToken, split_listen
from gpuwatch.settings.plugin_options import PREFIX

# --- [web] ------------------------------------------------------------------------------------------------------------


HIDDEN = {"type": "string", "writeOnly": True}
_HASH = re.compile(r"scrypt\$\d{1,2}\$\d{1,2}\$\d{1,2}\$[0-9a-f]{16,128}\$[0-9a-f]{64,128}")
_HOST = re.compile(r"\w([\w.-]*\w)?", re.ASCII)
_MIN_TOKEN_LENGTH = 16  # characters: fewer can be guessed


def _listen(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")  # noqa: TRY004 - pydantic turns ValueErrors into faults
    split_listen(value)
    return value.strip()


def _password_hash(value: Any) -> str | None:
    if isinstance(value, str) and not value.strip():
        return None
    if not isinstance(value, str) or not _HASH.fullmatch(value.strip()):
        raise ValueError("expected the output of `gpuwatch web --hash-password`")
    return value.strip()


def _token(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]+", value.strip()):
        raise ValueError("expected text without spaces")
    if len(value.strip()) < _MIN_TOKEN_LENGTH:
        raise ValueError(f"expected at least {_MIN_TOKEN_LENGTH} characters, such as from: openssl rand -hex 32")
    return value.strip()


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


class TokenTable(Table):
    """One of `tokens`."""

    name: Line = Field(description="Name in the log.")
    token: Annotated[SecretStr, BeforeValidator(_token), WithJsonSchema(HIDDEN)] | None = Field(
        default=None, description="Secret; prefer a file: token_file."
    )
    token_file: Line | None = Field(default=None, description="File with the token.")
    scopes: tuple[Literal["read", "approve", "manage"], ...] = Field(
        min_length=1, description="read: all pages; approve: answer approvals; manage: stop, pause, resume, silence."
    )

    @model_validator(mode="after")
    def _one_source(self) -> TokenTable:
        if (self.token is None) == (self.token_file is None):
            raise ValueError("expected either token or token_file")
        return self


class WebTable(Table):
    """`[web]`."""

    enabled: Switch = Field(default=False, description="true: `gpuwatch run` also serves the page and the API.")
    listen: Annotated[str, BeforeValidator(_listen)] = Field(
        default=DEFAULT_LISTEN,
        description="Address and port. An address other than loopback requires password_hash or tokens.",
    )
    password_hash: Annotated[SecretStr | None, BeforeValidator(_password_hash), WithJsonSchema(HIDDEN)] = Field(
        default=None, description="Secret. Output of `gpuwatch web --hash-password`."
    )
    tokens: tuple[TokenTable, ...] = Field(
        default=(), description="Secret. Bearer tokens: { name, token or token_file, scopes }."
    )
    trusted_hosts: Annotated[Words, AfterValidator(_hosts)] = Field(
        default=("localhost",), description="Accepted names in the Host header, in addition to loopback."
    )
    trusted_proxies: Annotated[tuple[str, ...], BeforeValidator(_proxies)] = Field(
        default=(), description="Addresses or networks of proxies whose X-Forwarded-* headers are trusted."
    )
    tls_certificate: Line | None = Field(default=None, description="PEM file with the certificate and its chain.")
    tls_key: Line | None = Field(default=None, description="PEM file with its key.")

    def value(self, secret_at: Callable[[tuple[str, ...], str], Secret] = lambda _, text: Secret(text)) -> WebSettings:
        """Return the plain value.

        Args:
            secret_at: (key, text) → the secret, which knows its place.
        """
        return WebSettings(
            enabled=self.enabled,
            listen=self.listen,
            password_hash=secret_at(("web", "password_hash"), self.password_hash.get_secret_value())
            if self.password_hash
            else None,
            tokens=tuple(
                WebToken(
                    name=token.name,
                    token=secret_at(("web", "tokens"), token.token.get_secret_value()) if token.token else None,
                    token_file=token.token_file,
                    scopes=tuple(token.scopes),
                )
                for token in self.tokens
            ),
            trusted_hosts=self.trusted_hosts,
            trusted_proxies=self.trusted_proxies,
            tls_certificate=self.tls_certificate,
            tls_key=self.tls_key,
        )


# --- the other tables -------------------------------------------------------------------------------------------------


# Under PYDANTIC_SETTINGS_DEBUG the library would log what every source holds, secrets included.
logging.getLogger("pydantic_settings").setLevel(logging.INFO)
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


def _commission(value: Any) -> Any:
    if not isinstance(value, (dict, CommissionTable)):  # the sources have made a table of a number
        raise ValueError('expected a number from 0 to 10, or { rate = 0.20, mode = "on_top" }')  # noqa: TRY004
    return value


def _rate(value: Any) -> Decimal:
    rate = number(value)
    if not 0 <= rate <= 10:
        raise ValueError("expected a fraction of the listed price, from 0 to 10: 0.20 is 20 %")
    return rate


def _heartbeat_url(value: Any) -> str | None:
    if isinstance(value, str) and not value.strip():
        return None
    return parse_url(value)


_ALWAYS_ON = " and ".join(name for name in providers.names() if providers.info(name).on_by_default)
_URI = {"type": "string", "format": "uri"}
_SWEEP = {"type": "string", "pattern": f"^auto$|{DURATION_PATTERN}", "examples": ["auto", "15m"]}
BaseUrl = Annotated[str, BeforeValidator(parse_url), WithJsonSchema(_URI)]
Channel = Annotated[Any | dict[str, Any], WithJsonSchema({})]  # validated by what the channel declares
Key = Annotated[SecretStr, BeforeValidator(parse_token), WithJsonSchema(HIDDEN)]


Rate = Annotated[Decimal, BeforeValidator(_rate), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 10})]


class CommissionTable(Table):
    """`{ rate = 0.20, mode = "on_top" }`."""

    rate: Rate = Field(description="Fraction of the listed price: 0.20 is 20 %.")
    mode: Literal["on_top", "included", "from_offer"] = Field(
        default=CommissionMode.ON_TOP.value,
        description="on_top: added to the listed price; included: part of it; from_offer: set by each offer.",
    )


class ProviderTable(Table):
    """One `[providers.NAME]`."""

    enabled: Switch | None = Field(
        default=None,
        description=f"Poll this provider? Default: true if it has a section or a key; {_ALWAYS_ON} always.",
    )
    api_key: Key | None = Field(default=None, description="Secret; prefer the environment. Required for renting.")
    previous_api_key: Key | None = Field(
        default=None, description="Secret. Key of a previous account: follows and ends its launches, rents nothing."
    )
    base_url: BaseUrl | None = Field(
        default=None, description="http(s) address of the API; default: the provider's own."
    )
    commission: (
        Annotated[CommissionTable, BeforeValidator(_commission, json_schema_input_type=Rate | CommissionTable)] | None
    ) = Field(default=None, description="Fraction on top of the listed price (0.20 is 20 %), or { rate, mode }.")
    poll_every: SpanFrom1s | None = Field(
        default=None,
        description="Poll interval for the watches, each with its own small query; at least 1s.",
    )
    sweep_every: Annotated[
        float | Literal["auto"],
        BeforeValidator(lambda value: value if value == "auto" else _sweep(value)),
        WithJsonSchema(_SWEEP),
    ] = Field(
        default="auto",
        description='Sweep interval for the history, at least 1s, or "auto": as the row quota allows.',
    )
    search_interval: Span | None = Field(
        default=None,
        description="Minimum interval between any two searches; 0s and 0.5s are allowed.",
    )
    rows_per_day: Annotated[Whole, Field(ge=0, le=1_000_000_000)] | None = Field(
        default=None, description="Daily row quota; 0: no quota."
    )
    timeout: SpanFrom1s = Field(default=30.0, description="Timeout of one request (default 30s).")
    min_billing: Span | None = Field(
        default=None, description="Minimum billing time of a launch; default: as the provider documents."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options specific to this provider; see its page in docs/providers."
    )


class RecordTable(Table):
    """`[record]`: GPUs to record in addition to those of the watches."""

    gpu: Words = Field(default=(), description="GPU families or names to record.")

    @field_validator("gpu")
    @classmethod
    def _gpus(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return check_gpus(value)


class WatchdogTable(Table):
    """`[watchdog]`: external monitoring of gpuwatch."""

    heartbeat_url: Annotated[SecretStr | None, BeforeValidator(_heartbeat_url), WithJsonSchema(HIDDEN)] = Field(
        default=None,
        description="URL to GET every healthy minute; /start and /fail are appended, as healthchecks.io expects.",
    )


class LaunchingTable(Table):
    """`[launch]`: settings for the launches of all watches."""

    watch_ended: Span = Field(
        default=604_800.0,
        description="For this long after its end, a launch is reopened if its instance is listed again.",
    )
    gather: Span = Field(
        default=3.0,
        description="How long a watch that rents waits for quotes of other providers; 0s: rent the first one.",
    )


class OrchestratorTable(Table):
    """`[orchestrator]`: the engine that rents the machines of jobs with `nodes` above 1."""

    tool: Literal["", "dstack"] = Field(
        default="", description="Engine for jobs on several machines; empty: such jobs are rejected."
    )
    program: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        default="dstack", description="Program: a name on PATH, or a path."
    )
    project: Annotated[str, Field(max_length=100, pattern=r"^[a-zA-Z0-9_-]*$")] = Field(
        default="", description="Project; empty: the user's default project."
    )
    timeout: SpanFrom1s = Field(default=60.0, description="Timeout of one call.")


class MergedTables(BaseSettings):
    """The tables of given sources, merged by pydantic-settings, before anything is validated."""

    model_config = SettingsConfigDict(extra="allow", case_sensitive=True, env_prefix=PREFIX, env_nested_delimiter="__")

    def __init__(self, *, sources: Sequence[PydanticBaseSettingsSource]) -> None:
        super().__init__(sources=sources)

    @classmethod
    def from_sources(cls, *sources: PydanticBaseSettingsSource) -> Self:
        """The tables of these sources; one wins over those after it."""
        return cls(sources=sources)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The given sources alone, instead of the library's own (`gpuwatch.settings.sources`)."""
        assert isinstance(init_settings, InitSettingsSource)
        return tuple(init_settings.init_kwargs["sources"])


class SettingsTables(Table, MergedTables):
    """All settings of gpuwatch."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, validate_default=False)

    timezone: Annotated[str, BeforeValidator(_zone)] = Field(
        default="UTC", description="Time zone for screens and `active` windows."
    )
    database_url: Annotated[SecretStr, BeforeValidator(_database_url), WithJsonSchema({"type": "string"})] | None = (
        Field(default=None, description="Database of the history; default: gpuwatch.db in the user's state folder.")
    )
    dry_run: Switch = Field(default=True, description="true: rents nothing and only reports what it would rent.")
    budget: Budget = Field(default_factory=Budget, description="Limits over all launches.")
    providers: dict[str, ProviderTable] = Field(default_factory=dict, description="Marketplaces, by name.")
    record: RecordTable = Field(
        default=RecordTable(), description="GPUs to record in addition to those of the watches."
    )
    launch: LaunchingTable = Field(default=LaunchingTable(), description="Settings for the launches of all watches.")
    orchestrator: OrchestratorTable = Field(
        default=OrchestratorTable(), description="Engine that rents the machines of multi-node jobs."
    )
    notify: dict[str, Channel] = Field(default_factory=dict, description="Alert channels, by name.")
    watchdog: WatchdogTable = Field(
        default=WatchdogTable(), description="External monitoring of gpuwatch, its machine and its network."
    )
    web: WebTable = Field(default=WebTable(), description="The web page and the HTTP API.")
    watch: tuple[Watch, ...] = Field(default=(), description="The watches.")


def _sweep(value: Any) -> float:
    interval_s = seconds(value)
    if interval_s < 1:
        raise ValueError('expected "auto", or a duration of at least 1s')
    return interval_s
