"""The options that providers and channels declare: `[providers.NAME.options]` and `[notify.NAME]`.

A channel is imported only if the settings use it: most starts need none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, Final

from pydantic import Field, PlainValidator, WithJsonSchema, create_model, model_validator

from gpuwatch import notifiers, providers
from gpuwatch.domain.setup.durations import EnvText, plain_json
from gpuwatch.domain.setup.fields import Table, table_with
from gpuwatch.domain.watches.windows import parse_window
from gpuwatch.ports import AlertKind, ProviderSection, Severity
from gpuwatch.ports.declarations import ChannelInfo, OptionSpec, ProviderInfo
from gpuwatch.ports.settings import Option

PREFIX = "GPUWATCH_"  # of the variables
KeyPath = tuple[str, ...]  # path of a setting: ("providers", "vastai", "api_key")
HEARTBEAT_URL: KeyPath = ("watchdog", "heartbeat_url")
_SECRETS: tuple[KeyPath, ...] = (("database_url",), HEARTBEAT_URL, ("web", "password_hash"), ("web", "tokens"))
TOP_LEVEL = (
    "owner",
    "language",
    "timezone",
    "database_url",
    "dry_run",
)  # TOML reads these as keys of a preceding [table]


def _windows(value: object) -> tuple[str, ...]:
    """Windows as in a watch's `active`: a text, a list, or a list as JSON. Raises ValueError."""
    raw = plain_json(EnvText(value)) if isinstance(value, str) and value.strip().startswith("[") else value
    windows = [raw] if isinstance(raw, str) else raw
    if not isinstance(windows, list | tuple) or not all(isinstance(window, str) for window in windows):
        raise ValueError('expected a list of windows, such as ["22:00-08:00"]')
    for window in windows:
        parse_window(window)
    return tuple(windows)


NOTIFY_OPTIONS = (
    OptionSpec(
        name="quiet_hours",
        kind="texts",
        about="Local time windows in which only critical alerts are sent; other alerts wait.",
        default=(),
        parse=_windows,
    ),
)
MIN_SEVERITY = OptionSpec(
    name="min_severity",
    kind="text",
    about="Alerts below this severity are delivered silently, or not at all if the channel cannot do that.",
    default=Severity.INFO.value,
    choices=tuple(severity.value for severity in Severity),
)
_COMMON_CHANNEL_OPTIONS = (MIN_SEVERITY,)

# --- declarations -----------------------------------------------------------------------------------------------------


def variable_of(path: KeyPath) -> str:
    """The environment variable of a key."""
    return PREFIX + "__".join(path).upper()


def option_specs_of(table: KeyPath) -> tuple[OptionSpec, ...]:
    """The options of one table: `("notify", "telegram")` or `("providers", "aws", "options")`; empty: no such table."""
    match table:
        case ("notify",):
            return NOTIFY_OPTIONS
        case ("notify", name) if name in notifiers.names():
            return options_of(notifiers.info(name))
        case ("providers", name, "options") if name in providers.names():
            return providers.info(name).options
    return ()


def options_of(info: ProviderInfo | ChannelInfo) -> tuple[OptionSpec, ...]:
    """The declared keys of a table; for a channel, including those that all channels have."""
    return (*info.options, *_COMMON_CHANNEL_OPTIONS) if isinstance(info, ChannelInfo) else info.options


def spec_at(path: KeyPath) -> OptionSpec | None:
    """The declaration of one key; None: no provider or channel declares it."""
    return next((spec for spec in option_specs_of(path[:-1]) if spec.name == path[-1]), None)


def is_secret_key(path: KeyPath) -> bool:
    """Is this key a secret? `database_url` may contain one as well."""
    match path:
        case ("providers", _, "api_key" | "previous_api_key") | ("watch", _, "launch", "registry", "password"):
            return True
    spec = spec_at(path)
    return path in _SECRETS or (spec is not None and spec.secret)


def secret_keys() -> Iterator[KeyPath]:
    """Every secret key of the installed providers and channels."""
    yield from _SECRETS
    for name in providers.names():
        yield ("providers", name, "api_key")
        yield ("providers", name, "previous_api_key")
        yield from secret_options(("providers", name, "options"))
    for name in notifiers.names():
        yield from secret_options(("notify", name))


def key_aliases() -> Mapping[str, KeyPath]:
    """The providers' own names of their keys, such as VAST_API_KEY, with the settings they set."""
    names = providers.names()
    return {alias: ("providers", name, "api_key") for name in names for alias in providers.info(name).key_names}


def secret_options(table: KeyPath) -> Iterator[KeyPath]:
    """The secret keys of one table of options."""
    return ((*table, spec.name) for spec in option_specs_of(table) if spec.secret)


# --- values -----------------------------------------------------------------------------------------------------------


@cache
def provider_table(info: ProviderInfo) -> type[Table]:
    """`[providers.NAME]` of one provider, with its defaults and its options; those may lack what only polling needs."""
    defaults = {
        "base_url": info.base_url,
        "poll_every": info.poll_every_s,
        "search_interval": info.search_interval_s,
        "rows_per_day": info.rows_per_day,
    }
    options = options_table(info.options, needs=False)
    field = Field(default_factory=dict, validate_default=True, description="Options specific to this provider.")
    return table_with(ProviderSection, defaults, options=(options, field))


@cache
def channel_table(info: ChannelInfo) -> type[Table]:
    """`[notify.NAME]` of one channel."""

    def check(self: Table) -> Table:
        if info.check is not None:
            info.check(values_in(self))
        return self

    return options_table(options_of(info), check=model_validator(mode="after")(check))


def options_table(specs: Iterable[OptionSpec], *, needs: bool = True, **validators: Any) -> type[Table]:
    """The keys that a provider or a channel declares, as pydantic validates them and as JSON Schema has them."""
    keys: dict[str, Any] = {}
    for spec in specs:
        hint = Annotated[Any, PlainValidator(partial(read_option, spec)), WithJsonSchema(_json_schema(spec))]
        default: Any = ... if spec.needed and needs else spec.default
        extra: Any = {"writeOnly": True} if spec.secret else None
        field = Field(default=default, alias=spec.name, description=spec.about, json_schema_extra=extra)
        keys[f"option_{spec.name}"] = (hint, field)  # a key may be called like a method of pydantic
    return create_model("Options", __base__=Table, __validators__=validators, **keys)


def values_in(table: Table) -> dict[str, Option]:
    """Every option of a validated table, with its value or default."""
    return {field.alias: getattr(table, name) for name, field in type(table).model_fields.items() if field.alias}


def read_option(spec: OptionSpec, value: Any) -> Option:
    """One value, validated. Raises ValueError with what was expected."""
    parsed = spec.parse(value) if spec.parse is not None else _READ[spec.kind](value, spec)
    if spec.check is not None:
        spec.check(parsed)
    return parsed


# What vast.ai's search, SkyPilot, dstack, the table beside it and a guess call a key, where the nearest spelling is
# another. The table that lacks the word decides: `[prepare]` of a job has outputs, the job has results.
_COMMON_MISTAKES: Final = {
    **dict.fromkeys(("num_gpus", "gpus", "count", "gpu_num"), "gpu_count"),
    **dict.fromkeys(("gpu_name", "gpu_type", "accelerators", "accelerator"), "gpu"),
    **dict.fromkeys(("country", "countries", "geolocation", "zone", "zones", "location"), "regions"),
    **dict.fromkeys(
        ("dph", "dph_total", "max_dph", "max_price_per_gpu", "price_limit", "max_hourly_cost"), "max_price"
    ),
    **dict.fromkeys(("max_usd_per_gpu_hour", "usd_per_gpu_hour", "max_usd_hour_per_gpu"), "max_price"),
    **dict.fromkeys(("use_spot", "spot_policy", "interruptible"), "spot"),
    **dict.fromkeys(("gpu_ram", "vram", "vram_gib", "gpu_memory"), "min_vram_gib"),
    **dict.fromkeys(("cloud", "clouds", "backends", "infra", "provider"), "providers"),
    **dict.fromkeys(("disk", "disk_size", "disk_space"), "disk_gb"),
    **dict.fromkeys(("results", "result"), "outputs"),
    **dict.fromkeys(("outputs", "output"), "results"),
    **dict.fromkeys(("run", "entrypoint"), "command"),
    **dict.fromkeys(("workdir", "file_mounts", "files", "repos"), "inputs"),
    **dict.fromkeys(("num_nodes", "machines"), "nodes"),
}


def unknown_key(key: str, known: Collection[str]) -> str:
    """The error message for an unknown key."""
    if key in TOP_LEVEL:
        return f"unknown key; {key} belongs at the top, above the first [table]"
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for an error

    suggestion = _COMMON_MISTAKES.get(key.lower())
    matches = [suggestion] if suggestion in known else get_close_matches(key.lower(), known, n=1, cutoff=0.6)
    if matches:
        return f"unknown key; did you mean {matches[0]}?"
    return f"unknown key; expected {'one of ' + ', '.join(known) if known else 'an empty table'}"


def _text(value: Any, spec: OptionSpec) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("expected text in quotes, on one line")
    if spec.choices and value not in spec.choices:
        raise ValueError(f"expected one of {', '.join(spec.choices)}")
    return value.strip()


def _texts(value: Any, spec: OptionSpec) -> tuple[str, ...]:
    if isinstance(value, str):  # a single word, or a list from the environment
        value = [part.strip() for part in value.strip("[]").replace('"', "").split(",")]
    if not isinstance(value, Sequence) or not value:
        raise ValueError('expected a list of texts, such as ["one", "two"]')
    return tuple(_text(one, spec) for one in value)


def _id(value: Any, spec: OptionSpec) -> str:
    """Text, or a whole number as digits."""
    return _text(str(value) if isinstance(value, int) and not isinstance(value, bool) else value, spec)


def _number(value: Any, spec: OptionSpec) -> float:
    error = f"expected a {'whole number' if spec.kind == 'integer' else 'number'}{_bounds(spec)}"
    try:
        number = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        raise ValueError(error) from None
    minimum, maximum = spec.least, spec.most
    is_within = (minimum is None or number >= minimum) and (maximum is None or number <= maximum)
    if not math.isfinite(number) or not is_within or (spec.kind == "integer" and number != int(number)):
        raise ValueError(error)
    return number


def _integer(value: Any, spec: OptionSpec) -> int:
    return int(_number(value, spec))


def _bounds(spec: OptionSpec) -> str:
    if spec.least is not None and spec.most is not None:
        return f" from {spec.least:g} to {spec.most:g}"
    return f" of at least {spec.least:g}" if spec.least is not None else ""


def _switch(value: Any, _spec: OptionSpec) -> bool:
    parsed = {"true": True, "false": False}.get(str(value).lower()) if isinstance(value, bool | str) else None
    if parsed is None:
        raise ValueError("expected true or false")
    return parsed


_READ: Mapping[str, Callable[[Any, OptionSpec], Option]] = {
    "text": _text,
    "texts": _texts,
    "id": _id,
    "number": _number,
    "integer": _integer,
    "switch": _switch,
}


def _json_schema(spec: OptionSpec) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"} | ({"enum": list(spec.choices)} if spec.choices else {})
    if spec.is_url:
        text["format"] = "uri"
    bounds = {key: value for key, value in (("minimum", spec.least), ("maximum", spec.most)) if value is not None}
    kinds: dict[str, dict[str, Any]] = {
        "text": text,
        "texts": {"anyOf": [text, {"type": "array", "items": text, "minItems": 0 if spec.default == () else 1}]},
        "id": {"type": ["string", "integer"]},
        "ids": {"type": "array", "items": {"type": ["string", "integer"]}},
        "number": {"type": "number"} | bounds,
        "integer": {"type": "integer"} | bounds,
        "switch": {"type": "boolean"},
        "templates": {
            "type": "object",
            "properties": {kind.value: {"type": "string"} for kind in AlertKind},
            "additionalProperties": False,
        },
    }
    return kinds[spec.kind]
