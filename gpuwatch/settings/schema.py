"""The schema of the settings file, by pydantic. Imported only to validate settings that are not cached."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, SecretStr, WithJsonSchema, field_validator

from gpuwatch import providers
from gpuwatch.domain.market.pricing import CommissionMode
from gpuwatch.domain.watches.durations import DURATION_PATTERN
from gpuwatch.domain.watches.fields import Span, SpanFrom1s, Switch, Table, Whole, Words, number, seconds
from gpuwatch.domain.watches.launch_schema import BudgetTable
from gpuwatch.domain.watches.schema import WatchTable, check_gpus
from gpuwatch.ports.declarations import parse_token, parse_url
from gpuwatch.settings.web_schema import WebTable

_DATABASES = ("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg")


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


def _rate(value: Any) -> Decimal:
    found = number(value)
    if not 0 <= found <= 10:
        raise ValueError("expected a fraction of the listed price, from 0 to 10: 0.20 is 20 %")
    return found


def _heartbeat_url(value: Any) -> str | None:
    if isinstance(value, str) and not value.strip():
        return None
    return parse_url(value)


_ALWAYS_ON = " and ".join(name for name in providers.names() if providers.info(name).on_by_default)
_URI = {"type": "string", "format": "uri"}
_SWEEP = {"type": "string", "pattern": f"^auto$|{DURATION_PATTERN}", "examples": ["auto", "15m"]}
_HIDDEN = {"type": "string", "writeOnly": True}
BaseUrl = Annotated[str, BeforeValidator(parse_url), WithJsonSchema(_URI)]
Key = Annotated[SecretStr, BeforeValidator(parse_token), WithJsonSchema(_HIDDEN)]


Rate = Annotated[Decimal, BeforeValidator(_rate), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 10})]


class CommissionTable(Table):
    """`{ rate = 0.20, mode = "on_top" }`."""

    rate: Rate = Field(description="Fraction of the listed price: 0.20 is 20 %.")
    mode: Literal["on_top", "included", "from_offer"] = Field(
        default=CommissionMode.ON_TOP.value,
        description="on_top: added to the listed price; included: inside it; from_offer: each offer names its own.",
    )


class ProviderTable(Table):
    """One `[providers.NAME]`."""

    enabled: Switch | None = Field(
        default=None, description=f"Poll this provider? Default: true with a section or a key; {_ALWAYS_ON} always."
    )
    api_key: Key | None = Field(default=None, description="Secret; better in the environment. Needed for renting.")
    previous_api_key: Key | None = Field(
        default=None, description="Secret. Key of another account: follows and ends what is alive there, rents nothing."
    )
    base_url: BaseUrl | None = Field(
        default=None, description="http(s) address of the API; default: the provider's own."
    )
    commission: (
        Annotated[CommissionTable, BeforeValidator(_commission, json_schema_input_type=Rate | CommissionTable)] | None
    ) = Field(default=None, description="Fraction on top of the listed price (0.20 is 20 %), or { rate, mode }.")
    poll_every: SpanFrom1s | None = Field(
        default=None,
        description="Duration between two polls for the watches, each with its own small query; at least 1s.",
    )
    sweep_every: Annotated[
        float | Literal["auto"],
        BeforeValidator(lambda value: value if value == "auto" else _sweep(value)),
        WithJsonSchema(_SWEEP),
    ] = Field(
        default="auto",
        description='Duration between two sweeps for the history, at least 1s, or "auto": as the rows allow.',
    )
    search_interval: Span | None = Field(
        default=None,
        description="Shortest duration between two searches of any kind; 0s and 0.5s are allowed.",
    )
    rows_per_day: Annotated[Whole, Field(ge=0, le=1_000_000_000)] | None = Field(
        default=None, description="Rows a day to plan with; 0: no quota."
    )
    timeout: SpanFrom1s = Field(default=30.0, description="Longest duration of one request (default 30s).")
    min_billing: Span | None = Field(
        default=None, description="Shortest time that is billed for a launch; default: as the provider documents."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of this provider alone; see its page in docs/providers."
    )


class RecordTable(Table):
    """`[record]`: kept in the history although no watch names them."""

    gpu: Words = Field(default=(), description="GPU families or names to record.")

    @field_validator("gpu")
    @classmethod
    def _gpus(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return check_gpus(value)


class WatchdogTable(Table):
    """`[watchdog]`: somebody else notices when gpuwatch is gone."""

    heartbeat_url: Annotated[SecretStr | None, BeforeValidator(_heartbeat_url), WithJsonSchema(_HIDDEN)] = Field(
        default=None,
        description="Address to GET at every healthy minute; with /start and /fail behind it, as healthchecks.io does.",
    )


class LaunchingTable(Table):
    """`[launch]`: what holds for launches of all watches."""

    watch_ended: Span = Field(
        default=604_800.0,
        description="For so long after its end a launch is reopened when its instance is listed again.",
    )
    gather: Span = Field(
        default=3.0,
        description="A renting watch waits so long for quotes of its other providers; 0s: the first one wins.",
    )


class OrchestratorTable(Table):
    """`[orchestrator]`: the engine that rents the machines of jobs with `nodes` above 1."""

    tool: Literal["", "dstack"] = Field(
        default="", description="The engine that runs jobs on several machines; empty: they are refused."
    )
    program: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        default="dstack", description="Its program: a name on PATH, or a path."
    )
    project: Annotated[str, Field(max_length=100, pattern=r"^[a-zA-Z0-9_-]*$")] = Field(
        default="", description="Its project; empty: its user's default one."
    )
    timeout: SpanFrom1s = Field(default=60.0, description="Longest duration of one call of it.")


class Root(Table):
    """All settings of gpuwatch."""

    timezone: Annotated[str, BeforeValidator(_zone)] = Field(
        default="UTC", description="Name of the time zone of screens and `active` windows."
    )
    database_url: Annotated[SecretStr, BeforeValidator(_database_url), WithJsonSchema({"type": "string"})] | None = (
        Field(default=None, description="Where the history is kept; default: gpuwatch.db in the user's state folder.")
    )
    dry_run: Switch = Field(default=True, description="true: rents nothing, only reports what it would rent.")
    budget: BudgetTable = Field(default=BudgetTable(), description="Limits over everything that gpuwatch rents.")
    providers: dict[str, ProviderTable] = Field(default_factory=dict, description="Marketplaces, by name.")
    record: RecordTable = Field(
        default=RecordTable(), description="GPUs kept in the history although no watch names them."
    )
    launch: LaunchingTable = Field(default=LaunchingTable(), description="What holds for launches of all watches.")
    orchestrator: OrchestratorTable = Field(
        default=OrchestratorTable(), description="The engine that rents the machines of jobs with several nodes."
    )
    notify: dict[str, Any] = Field(default_factory=dict, description="Where alerts go, by channel.")
    watchdog: WatchdogTable = Field(
        default=WatchdogTable(), description="Who notices when gpuwatch, its machine or its network is gone."
    )
    web: WebTable = Field(default=WebTable(), description="The web page and the HTTP API.")
    watch: tuple[WatchTable, ...] = Field(default=(), description="The watches.")


def _sweep(value: Any) -> float:
    found = seconds(value)
    if found < 1:
        raise ValueError('expected "auto", or a duration of at least 1s')
    return found
