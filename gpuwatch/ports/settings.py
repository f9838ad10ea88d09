"""The settings of a provider and of a channel: as they are configured, and as their adapter receives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from gpuwatch.domain.alerts.alert import Severity
from gpuwatch.domain.market.money import Commission, CommissionMode
from gpuwatch.domain.setup.durations import DURATION_PATTERN, EnvText, plain_json
from gpuwatch.domain.setup.fields import (
    Span,
    SpanFrom1s,
    Spec,
    Switch,
    Table,
    Whole,
    about,
    exact_number,
    seconds,
)
from gpuwatch.secret import Secret

_LINE_LENGTH = 500
Option = str | int | float | bool | tuple[str, ...] | dict[str, str] | None


# --- how an option is read --------------------------------------------------------------------------------------------


def parse_url(value: object) -> str:
    """For `OptionSpec.parse`: an http(s) address without user, query or trailing slash. Raises ValueError."""
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


def parse_token(value: object) -> str:
    """For `OptionSpec.parse`: a key or token: printable ASCII without spaces. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")  # noqa: TRY004 - one exception type for all invalid values
    text = str(value).strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("expected printable ASCII without spaces")
    return text


def parse_password(value: object) -> str:
    """For `OptionSpec.parse`: one line of text, not stripped. Raises ValueError."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("expected text in quotes, on one line")
    return str(value)


def parse_line(value: object) -> str:
    """For `OptionSpec.parse`: one line of text, stripped, at most 500 characters. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")  # noqa: TRY004
    text = str(value).strip()
    if not text or not text.isprintable():
        raise ValueError("expected one non-empty line of text")
    if len(text) > _LINE_LENGTH:
        raise ValueError(f"expected at most {_LINE_LENGTH} characters")
    return text


def parse_list(parse_item: Callable[[object], str]) -> Callable[[object], tuple[str, ...]]:
    """For `OptionSpec.parse`: a list, or a single text as a list of one; also JSON from the environment."""

    def parse(value: object) -> tuple[str, ...]:
        if isinstance(value, EnvText) and value.lstrip().startswith("["):
            value = plain_json(value)
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not items:
            raise ValueError("expected a non-empty list of texts")
        return tuple(map(parse_item, items))

    return parse


# --- a provider -------------------------------------------------------------------------------------------------------


def _sweep(value: object) -> float | None:
    if value == "auto":
        return None
    interval_s = seconds(value)
    if interval_s < 1:
        raise ValueError('expected "auto", or a duration of at least 1s')
    return interval_s


def _commission(value: object) -> object:
    if not isinstance(value, dict | CommissionTable):  # the sources have made a table of a number
        raise ValueError('expected a number from 0 to 10, or { rate = 0.20, mode = "on_top" }')  # noqa: TRY004
    return value


def _rate(value: object) -> Decimal:
    rate = exact_number(value)
    if not 0 <= rate <= 10:
        raise ValueError("expected a fraction of the listed price, from 0 to 10: 0.20 is 20 %")
    return rate


HIDDEN = {"type": "string", "writeOnly": True}
ApiKey = Annotated[Secret, PlainValidator(lambda value: Secret(parse_token(value))), WithJsonSchema(HIDDEN)]
Rate = Annotated[Decimal, BeforeValidator(_rate), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 10})]
BaseUrl = Annotated[str, BeforeValidator(parse_url), WithJsonSchema({"type": "string", "format": "uri"})]
SweepSpan = Annotated[
    float | None,
    BeforeValidator(_sweep),
    WithJsonSchema({"type": "string", "pattern": f"^auto$|{DURATION_PATTERN}", "examples": ["auto", "15m"]}),
]


class CommissionTable(Table):
    """`{ rate = 0.20, mode = "on_top" }`."""

    rate: Rate = Field(description="Fraction of the listed price: 0.20 is 20 %.")
    mode: CommissionMode = Field(
        default=CommissionMode.ON_TOP,
        description="on_top: added to the listed price; included: part of it; from_offer: set by each offer.",
    )


class ProviderKeys:
    """Keys of `[providers.NAME]` that `ProviderTerms` holds by other fields."""

    enabled: Annotated[
        Switch | None,
        about("Poll this provider? Default: true if it has a section or a key."),
    ] = None
    commission: Annotated[
        Annotated[CommissionTable, BeforeValidator(_commission, json_schema_input_type=Rate | CommissionTable)] | None,
        about("Fraction on top of the listed price (0.20 is 20 %), or { rate, mode }."),
    ] = None
    min_billing: Annotated[
        Span | None, about("Minimum billing time of a launch; default: as the provider documents.")
    ] = None
    options: Annotated[dict[str, Any], about("Options specific to this provider; see its page in docs/providers.")] = {}  # noqa: RUF012 never changed


class ProviderTerms(Spec, frozen=True, kw_only=True):
    """One `[providers.NAME]`, without its secrets. A provider declares its own defaults."""

    Keys = ProviderKeys

    name: str
    commission: Commission = Commission()
    options: Mapping[str, Option] = msgspec.field(default_factory=dict)  # of this provider, with defaults
    base_url: Annotated[BaseUrl, about("http(s) address of the API; default: the provider's own.")]
    poll_every_s: Annotated[
        SpanFrom1s, about("Poll interval for the watches, each with its own small query; at least 1s.")
    ] = 30.0
    sweep_every_s: Annotated[
        SweepSpan, about('Sweep interval for the history, at least 1s, or "auto": as the row quota allows.')
    ] = None
    search_interval_s: Annotated[Span, about("Minimum interval between any two searches; 0s and 0.5s are allowed.")] = (
        6.0
    )
    rows_per_day: Annotated[Whole, about("Daily row quota; 0: no quota.", ge=0, le=1_000_000_000)] = 20_000
    timeout_s: Annotated[SpanFrom1s, about("Timeout of one request (default 30s).")] = 30.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.base_url!r})"


class ProviderSettings(ProviderTerms, frozen=True, kw_only=True):
    """One `[providers.NAME]` for its adapter. `api_key` and some options are secrets: never logged, shown or stored."""

    api_key: str | None = None
    previous_api_key: str | None = None  # also a secret: follows and ends launches under it, rents nothing

    __repr__ = ProviderTerms.__repr__


class ProviderSection(ProviderTerms, frozen=True, kw_only=True):
    """One `[providers.NAME]` of the settings: its secrets are references."""

    api_key: Annotated[ApiKey | None, about("Secret; prefer the environment. Required for renting.")] = None
    previous_api_key: Annotated[
        ApiKey | None, about("Secret. Key of a previous account: follows and ends its launches, rents nothing.")
    ] = None
    secrets: Mapping[str, Secret] = msgspec.field(default_factory=dict)  # the secret options that are set

    __repr__ = ProviderTerms.__repr__

    def revealed(self) -> ProviderSettings:
        """The same with the texts of its secrets, for the adapter that is built now."""
        terms = {name: getattr(self, name) for name in ProviderTerms.__struct_fields__}
        return ProviderSettings(
            **terms | {"options": _revealed(self.options, self.secrets)},
            api_key=None if self.api_key is None else self.api_key.reveal(),
            previous_api_key=None if self.previous_api_key is None else self.previous_api_key.reveal(),
        )


class ChannelTerms(msgspec.Struct, frozen=True, kw_only=True):
    """One `[notify.NAME]`, without its secrets.

    `min_severity`: alerts below it are delivered silently, or not at all if the channel cannot do that.
    """

    name: str
    options: Mapping[str, Option] = {}  # with defaults
    min_severity: Severity = Severity.INFO

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ChannelSettings(ChannelTerms, frozen=True, kw_only=True):
    """One `[notify.NAME]` for its channel. Some options are secrets: never logged, shown or stored."""

    __repr__ = ChannelTerms.__repr__


class ChannelSection(ChannelTerms, frozen=True, kw_only=True):
    """One `[notify.NAME]` of the settings: its secrets are references."""

    secrets: Mapping[str, Secret] = {}  # the secret options that are set

    __repr__ = ChannelTerms.__repr__

    def revealed(self) -> ChannelSettings:
        """The same with the texts of its secrets, for the channel that is built now."""
        options = _revealed(self.options, self.secrets)
        return ChannelSettings(name=self.name, options=options, min_severity=self.min_severity)


def _revealed(options: Mapping[str, Option], secrets: Mapping[str, Secret]) -> dict[str, Option]:
    return {**options, **{name: secret.reveal_option() for name, secret in secrets.items()}}
