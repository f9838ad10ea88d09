"""The schema of the whole settings file, by pydantic. Imported only where settings are judged anew."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, SecretStr, WithJsonSchema, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from gpuwatch.domain.market.pricing import CommissionMode
from gpuwatch.domain.watches.fields import (
    Line,
    Number,
    Span,
    SpanFrom1s,
    Switch,
    Table,
    Whole,
    Words,
    one_or_many,
    read_env_text,
    seconds,
)
from gpuwatch.domain.watches.launch_schema import BudgetTable
from gpuwatch.domain.watches.schema import WatchTable, check_gpus

_DATABASES = ("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg")
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def _secret(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")  # noqa: TRY004 pydantic turns ValueErrors into faults
    text = str(value).strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("expected printable ASCII without blanks")
    return text


def _password(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("expected text in quotes, on one line")
    return value


def _base_url(value: Any) -> str:
    wrong = ValueError('expected an http:// or https:// address, such as "https://console.vast.ai"')
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise wrong
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise wrong
    if "@" in parts.netloc:
        raise ValueError("expected an address without user and password")
    return str(value).rstrip("/")


def _database_url(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("expected text in quotes")
    scheme, found, rest = value.strip().partition("://")
    if not found or scheme not in _DATABASES:
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
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return {"rate": value}
    if not isinstance(value, (dict, CommissionTable)):
        raise ValueError('expected a number from 0 to 10, or { rate = 0.20, mode = "on_top" }')  # noqa: TRY004
    return value


def _address(value: Any) -> str:
    if not isinstance(value, str) or "@" not in value or not value.isprintable():
        raise ValueError('expected a mail address, such as "me@example.org"')
    return value.strip()


def _chat(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _none_if_empty(value: Any) -> Any:
    return None if value == {} else value


_URI = {"type": "string", "format": "uri"}
_HIDDEN = {"type": "string", "writeOnly": True}
BaseUrl = Annotated[str, BeforeValidator(_base_url), WithJsonSchema(_URI)]
Key = Annotated[SecretStr, BeforeValidator(_secret), WithJsonSchema(_HIDDEN)]
Password = Annotated[SecretStr, BeforeValidator(_password), WithJsonSchema(_HIDDEN)]
_MANY = BeforeValidator(one_or_many, json_schema_input_type=str | list[str])
Address = Annotated[str, BeforeValidator(_address), WithJsonSchema({"type": "string"})]


class CommissionTable(Table):
    """`{ rate = 0.20, mode = "on_top" }`."""

    rate: Annotated[Number, Field(ge=0, le=10)] = Field(description="Fraction of the listed price: 0.20 is 20 %.")
    mode: Literal["on_top", "included", "from_offer"] = Field(
        default=CommissionMode.ON_TOP.value,
        description="on_top: added to the listed price; included: inside it; from_offer: each offer names its own.",
    )


class ProviderTable(Table):
    """One `[providers.NAME]`."""

    enabled: Switch | None = Field(
        default=None, description="Ask this provider? Default: true with a section or a key; vastai always."
    )
    api_key: Key | None = Field(default=None, description="Secret; better in the environment. Needed for renting.")
    base_url: BaseUrl | None = Field(
        default=None, description="http(s) address of the API; default: the provider's own."
    )
    commission: (
        Annotated[CommissionTable, BeforeValidator(_commission, json_schema_input_type=float | CommissionTable)] | None
    ) = Field(default=None, description="Fraction on top of the listed price (0.20 is 20 %), or { rate, mode }.")
    poll_every: SpanFrom1s | None = Field(
        default=None,
        description="Duration between two hunts: each watch's own small query; at least 1s.",
    )
    sweep_every: Annotated[
        float | Literal["auto"],
        BeforeValidator(lambda value: value if value == "auto" else _sweep(value)),
        WithJsonSchema({"type": "string", "examples": ["auto", "15m"]}),
    ] = Field(
        default="auto",
        description='Duration between two sweeps for the history, at least 1s, or "auto": as the rows allow.',
    )
    search_interval: Span | None = Field(
        default=None,
        description="Duration between two searches at least, whoever asks; 0s and 0.5s are allowed.",
    )
    rows_per_day: Annotated[Whole, Field(ge=0, le=1_000_000_000)] | None = Field(
        default=None, description="Rows a day to plan with; 0: no quota."
    )
    timeout: SpanFrom1s = Field(default=30.0, description="Duration that one request may take (default 30s).")
    min_billing: Span | None = Field(
        default=None, description="The least that is billed for a launch, as time; default: as the provider documents."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="What this provider alone knows; see its page in docs/providers."
    )


class RecordTable(Table):
    """`[record]`: kept in the history although no watch names them."""

    gpu: Words = Field(default=(), description="GPU families or names to record.")

    @field_validator("gpu")
    @classmethod
    def _gpus(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return check_gpus(value)


class TelegramTable(Table):
    """`[notify.telegram]`."""

    bot_token: Key = Field(description="Secret; the bot's token from @BotFather.")
    chat_id: Annotated[Line, BeforeValidator(_chat), WithJsonSchema({"type": ["string", "integer"]})] = Field(
        description="Chat that gets the alerts: a number, or @channel."
    )
    base_url: BaseUrl = Field(default="https://api.telegram.org", description="http(s) address of the Bot API.")


class EmailTable(Table):
    """`[notify.email]`."""

    host: Line = Field(description="The mail server.")
    port: Annotated[Whole, Field(ge=1, le=65535)] | None = Field(
        default=None, description="Its port; default 587 with starttls, 465 with tls, 25 with none."
    )
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="How the connection is encrypted."
    )
    username: Line | None = Field(default=None, description="User at the mail server; goes with password.")
    password: Password | None = Field(default=None, description="Secret; the user's password.")
    sender: Address = Field(description="Address that alerts come from.")
    recipients: Annotated[tuple[Address, ...], _MANY, Field(min_length=1)] = Field(
        description="Addresses that alerts go to."
    )

    @model_validator(mode="after")
    def _pair(self) -> EmailTable:
        if (self.username is None) != (self.password is None):
            raise ValueError("expected username and password together, or neither")
        return self

    @property
    def actual_port(self) -> int:
        """As set, or by the kind of security."""
        return self.port or _PORTS[self.security]


class AppriseTable(Table):
    """`[notify.apprise]`: the other hundred services."""

    urls: Annotated[tuple[Password, ...], _MANY, Field(min_length=1)] = Field(
        description='Secrets; addresses as Apprise spells them: ["ntfy://…", "slack://…"].'
    )


class NotifyTable(Table):
    """`[notify.*]`: where alerts go. An empty table is no channel."""

    telegram: Annotated[TelegramTable | None, BeforeValidator(_none_if_empty)] = Field(
        default=None, description="Telegram."
    )
    email: Annotated[EmailTable | None, BeforeValidator(_none_if_empty)] = Field(default=None, description="Mail.")
    apprise: Annotated[AppriseTable | None, BeforeValidator(_none_if_empty)] = Field(
        default=None, description="Apprise."
    )


class Root(BaseSettings):
    """All settings of gpuwatch."""

    model_config = SettingsConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True, validate_default=False)

    timezone: Annotated[str, BeforeValidator(_zone)] = Field(
        default="UTC", description="Name of the time zone of screens and `active` windows."
    )
    database_url: Annotated[SecretStr, BeforeValidator(_database_url), WithJsonSchema({"type": "string"})] | None = (
        Field(default=None, description="Where the history is kept; default: gpuwatch.db in the user's state folder.")
    )
    dry_run: Switch = Field(default=True, description="true: nothing is rented, only told.")
    budget: BudgetTable = Field(default=BudgetTable(), description="Limits over everything that gpuwatch rents.")
    providers: dict[str, ProviderTable] = Field(default_factory=dict, description="Marketplaces, by name.")
    record: RecordTable = Field(
        default=RecordTable(), description="GPUs kept in the history although no watch names them."
    )
    notify: NotifyTable = Field(default=NotifyTable(), description="Where alerts go.")
    watch: tuple[WatchTable, ...] = Field(default=(), description="The watches.")

    @field_validator("*", mode="before")
    @classmethod
    def _from_env(cls, value: Any, info: Any) -> Any:
        return read_env_text(value, cls.model_fields[info.field_name].annotation)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The layers are merged in `sources`, which knows each value's origin: the library's own do not."""
        given = init_settings.init_kwargs if isinstance(init_settings, InitSettingsSource) else {}
        return (InitSettingsSource(settings_cls, init_kwargs=given),)


def _sweep(value: Any) -> float:
    found = seconds(value)
    if found < 1:
        raise ValueError('expected "auto", or a duration of at least 1s')
    return found
