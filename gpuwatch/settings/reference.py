"""Every setting as one row, from the schema: for the documentation, `.env.example` and `config show`.

And the JSON Schema of the settings file, for editors. Both include every installed provider and channel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any
from zoneinfo import available_timezones

import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuwatch import notifiers, providers
from gpuwatch.domain.setup.durations import format_duration
from gpuwatch.domain.setup.fields import Table, is_duration, is_secret, keys_of, table_of
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.watch_fields import GpuCount
from gpuwatch.ports import ProviderSection
from gpuwatch.ports.declarations import OptionSpec, ProviderInfo
from gpuwatch.settings.model import Settings
from gpuwatch.settings.plugin_options import (
    NOTIFY_OPTIONS,
    KeyPath,
    channel_table,
    options_of,
    options_table,
    variable_of,
)
from gpuwatch.settings.watch_rules import WITHOUT_LIMIT, heritable_table, table_model


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. `default` as written in the file; empty: not set."""

    path: KeyPath
    default: str
    text: str
    needed: bool = False  # within its table
    secret: bool = False

    @property
    def key(self) -> str:
        """`providers.vastai.base_url`."""
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return variable_of(self.path)


def setting_rows() -> list[SettingRow]:
    """All settings except those of a watch and what watches inherit, with every installed provider and channel."""
    rows = list(_rows(table_of(Settings), (), ("providers", "notify", "defaults", "group", "watch")))
    rows += _option_rows(NOTIFY_OPTIONS, ("notify",))
    for name in notifiers.names():
        rows += _option_rows(options_of(notifiers.info(name)), ("notify", name))
    for name in providers.names():
        rows += _provider_rows(providers.info(name))
    return rows


def watch_rows() -> list[SettingRow]:
    """The settings of one `[[watch]]`, its launch included."""
    return list(_rows(table_of(Watch), ("watch",), ()))


def toml_text(value: Any) -> str:
    """A default as a file spells it."""
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (int, Decimal)):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{one}"' for one in value) + "]"
    if isinstance(value, GpuCount):
        return str(value.min)
    return f'"{value}"'


def _rows(model: type[BaseModel], path: KeyPath, excluded: tuple[str, ...]) -> Iterator[SettingRow]:
    for name, field in keys_of(model).items():
        if name in excluded:
            continue
        inner = table_model(field)
        if inner is not None:
            yield from _rows(inner, (*path, name), ())
        else:
            default = "" if field.is_required() else _default_text(field)
            own_path = (*path, name)
            yield SettingRow(
                path=own_path,
                default=default,
                text=field.description or "",
                needed=field.is_required(),
                secret=is_secret(field),
            )


def _default_text(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    is_span = isinstance(value, float) and is_duration(field)
    return _span_text(value) if is_span else toml_text(value)


def _span_text(seconds: float) -> str:
    return f'"{format_duration(seconds)}"'


def _provider_rows(info: ProviderInfo) -> Iterator[SettingRow]:
    """Without the provider's own table: to build those of all providers takes longer than a page may."""
    rate, mode = info.commission.rate_text, info.commission.mode.value
    defaults = {
        "enabled": str(info.on_by_default).lower(),
        "base_url": toml_text(info.base_url),
        "poll_every": _span_text(info.poll_every_s),
        "search_interval": _span_text(info.search_interval_s),
        "rows_per_day": toml_text(info.rows_per_day),
        "min_billing": _span_text(info.billing.minimum_s),
        "commission": rate if mode == "on_top" else f'{{ rate = {rate}, mode = "{mode}" }}',
        "sweep_every": '"auto"',
    }
    path = "providers", info.name
    for row in _rows(table_of(ProviderSection), path, ("options",)):
        yield msgspec.structs.replace(row, default=defaults.get(row.path[-1], row.default), needed=False)
    yield from _option_rows(info.options, (*path, "options"))


def _option_rows(specs: Iterable[OptionSpec], path: KeyPath) -> Iterator[SettingRow]:
    for spec in specs:
        default = "[]" if spec.default == () else toml_text(spec.default)  # an empty list is not the same as none
        yield SettingRow(
            path=(*path, spec.name),
            default="" if spec.needed else default,
            text=spec.about,
            needed=spec.needed,
            secret=spec.secret,
        )


# --- the JSON Schema --------------------------------------------------------------------------------------------------


_KEYWORDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}


def json_schema() -> dict[str, Any]:
    """The schema, ready for JSON."""
    schema: dict[str, Any] = _simplified(table_of(Settings).model_json_schema())
    schema["title"] = "gpuwatch"
    settings = schema["properties"]
    settings["timezone"]["enum"] = sorted(available_timezones())
    settings["providers"] |= {
        "properties": {name: _provider(name) for name in providers.names()},
        "additionalProperties": False,
    }
    settings["notify"] |= {
        "properties": _options(options_table(NOTIFY_OPTIONS))["properties"]
        | {name: _channel(name) for name in notifiers.names()},
        "additionalProperties": False,
    }
    schema["$defs"]["Watch"]["oneOf"] = _limits()
    heritable = _simplified(heritable_table().model_json_schema())
    schema["$defs"] |= heritable.pop("$defs", {}) | {"WatchDefaults": heritable}
    inherited = {"$ref": "#/$defs/WatchDefaults"}
    settings["defaults"] |= {"properties": {"watch": inherited}, "additionalProperties": False}
    settings["group"] |= {"additionalProperties": inherited}
    provider = schema["$defs"]["ProviderSection"]  # whose defaults each provider declares
    del provider["required"]
    for key in ("poll_every", "search_interval", "rows_per_day"):
        del provider["properties"][key]["default"]
    provider["properties"]["sweep_every"]["default"] = "auto"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _limits() -> list[dict[str, Any]]:
    """Exactly one limit is required; alerts whose condition is itself a limit need none."""
    limited = [{"required": ["max_price"]}, {"required": ["max_job_cost"]}]
    without_limit = [{"required": [key]} for key in WITHOUT_LIMIT]
    return [*limited, {"not": {"anyOf": limited}, "anyOf": without_limit, "properties": {"action": {"const": "alert"}}}]


def job_json_schema() -> dict[str, Any]:
    """The schema of a job file, ready for JSON."""
    from gpuwatch.domain.jobs.job_definition import RESOURCE_KEYS, JobDefinition  # noqa: PLC0415 - the daemon needs neither

    schema: dict[str, Any] = _simplified(table_of(JobDefinition).model_json_schema())
    schema["title"] = "gpuwatch job"
    schema["required"] = [key for key in schema["required"] if key != "name"]  # default: the file name
    resources = schema["$defs"]["Watch"]
    resources["properties"] = {
        key: resource for key, resource in resources["properties"].items() if key in RESOURCE_KEYS
    }
    # a step before needs neither: it runs without a GPU then
    schema["properties"]["resources"]["anyOf"] = [{"required": ["gpu"]}, {"required": ["min_vram_gib"]}]
    resources.pop("required", None)
    resources["description"] = "Offers that the job can use, as in a watch."
    resources["properties"]["gpu"]["description"] += " Default: any with min_vram_gib."
    for work in (schema, schema["$defs"]["PrepareSpec"]):
        work["oneOf"] = [{"required": ["command"]}, {"required": ["script"]}]
    _drop_unused(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _drop_unused(schema: dict[str, Any]) -> None:
    """Remove unused definitions."""
    while True:
        text = json.dumps(schema)
        unused = [name for name in schema["$defs"] if f'"#/$defs/{name}"' not in text]
        if not unused:
            return
        for name in unused:
            del schema["$defs"][name]


def schema_text() -> str:
    """The schema as `gpuwatch init` writes it next to the settings."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _provider(name: str) -> dict[str, Any]:
    info = providers.info(name)
    options = {"description": "Options specific to this provider.", **_options(options_table(info.options))}
    return {"$ref": "#/$defs/ProviderSection", "description": info.title, "properties": {"options": options}}


def _channel(name: str) -> dict[str, Any]:
    info = notifiers.info(name)
    return {"description": info.title, **_options(channel_table(info))}


def _options(table: type[Table]) -> dict[str, Any]:
    """One table of options. A required secret is optional here: it usually comes from the environment."""
    schema: dict[str, Any] = _simplified(table.model_json_schema())
    properties = schema.get("properties", {})
    required = [key for key in schema.get("required", ()) if "writeOnly" not in properties[key]]
    plain = {"type": "object", "properties": properties, "additionalProperties": False}
    return plain | ({"required": required} if required else {})


def _simplified(node: Any) -> Any:
    """pydantic's schema with limits as JSON Schema keywords, without null (TOML has none), defaults as in a file."""
    if isinstance(node, list):
        return [_simplified(one) for one in node if one != {"type": "null"}]
    if not isinstance(node, dict):
        return node
    tidied: dict[str, Any] = {_KEYWORDS.get(str(key), str(key)): _simplified(value) for key, value in node.items()}
    if len(tidied.get("anyOf", ())) == 1:
        tidied = tidied.pop("anyOf")[0] | tidied
    if "default" in tidied:
        tidied["default"] = _default(tidied)
        is_of_table = "$ref" in tidied and isinstance(tidied["default"], dict)
        if tidied["default"] is None or is_of_table or (tidied["default"] == [] and "minItems" in tidied):
            del tidied["default"]
    if "properties" in tidied:  # titles would only repeat the keys
        tidied["properties"] = {key: _untitled(one) for key, one in tidied["properties"].items()}
    return tidied


def _default(node: dict[str, Any]) -> Any:
    value = node["default"]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if node.get("type") == "string" and is_number:
        return format_duration(value)
    return float(value) if node.get("type") == "number" and isinstance(value, str) else value


def _untitled(node: Any) -> Any:
    untitled = {key: value for key, value in node.items() if key != "title"}
    if "anyOf" in untitled:  # applies to the list; it is placed next to both
        untitled = {key: value for key, value in untitled.items() if key not in {"minLength", "maxLength"}}
    return untitled
