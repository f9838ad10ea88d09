"""The JSON Schema of the settings file, for editors. It includes every installed provider and channel."""

from __future__ import annotations

import json
from typing import Any
from zoneinfo import available_timezones

from gpuwatch import notifiers, providers
from gpuwatch.domain.watches.durations import format_duration
from gpuwatch.ports import AlertKind
from gpuwatch.ports.declarations import OptionSpec
from gpuwatch.settings.options import NOTIFY_OPTIONS, options_of
from gpuwatch.settings.schema import Root
from gpuwatch.settings.watch_rules import WITHOUT_LIMIT

_KEYWORDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}


def json_schema() -> dict[str, Any]:
    """The schema, ready for JSON."""
    found: dict[str, Any] = _tidied(Root.model_json_schema())
    found["title"] = "gpuwatch"
    settings = found["properties"]
    settings["timezone"]["enum"] = sorted(available_timezones())
    settings["providers"] |= {
        "properties": {name: _provider(name) for name in providers.names()},
        "additionalProperties": False,
    }
    settings["notify"] |= {
        "properties": {spec.name: _option(spec) for spec in NOTIFY_OPTIONS}
        | {name: _channel(name) for name in notifiers.names()},
        "additionalProperties": False,
    }
    found["$defs"]["WatchTable"]["oneOf"] = _limits()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _limits() -> list[dict[str, Any]]:
    """Exactly one limit is required; alerts whose condition is itself a limit need none."""
    limited = [{"required": ["max_price"]}, {"required": ["max_job_cost"]}]
    is_news = [{"required": [key]} for key in WITHOUT_LIMIT]
    return [*limited, {"not": {"anyOf": limited}, "anyOf": is_news, "properties": {"action": {"const": "alert"}}}]


def job_json_schema() -> dict[str, Any]:
    """The schema of a job file, ready for JSON."""
    from gpuwatch.settings.job_schema import RESOURCE_KEYS, JobFileTable  # noqa: PLC0415 - the daemon needs neither

    found: dict[str, Any] = _tidied(JobFileTable.model_json_schema())
    found["title"] = "gpuwatch job"
    found["required"] = [key for key in found["required"] if key != "name"]  # default: the file name
    resources = found["$defs"]["ResourcesTable"]
    resources["properties"] = {key: one for key, one in resources["properties"].items() if key in RESOURCE_KEYS}
    resources["anyOf"] = [{"required": ["gpu"]}, {"required": ["min_vram_gib"]}]
    resources.pop("required", None)
    found["oneOf"] = [{"required": ["command"]}, {"required": ["script"]}]
    _drop_unused(found)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


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
    options = {"description": "Options specific to this provider.", **_options(info.options)}
    return {"$ref": "#/$defs/ProviderTable", "description": info.title, "properties": {"options": options}}


def _channel(name: str) -> dict[str, Any]:
    info = notifiers.info(name)
    return {"description": info.title, **_options(options_of(info))}


def _options(specs: tuple[OptionSpec, ...]) -> dict[str, Any]:
    """One table of options. A required secret is optional here: it usually comes from the environment."""
    found: dict[str, Any] = {
        "type": "object",
        "properties": {spec.name: _option(spec) for spec in specs},
        "additionalProperties": False,
    }
    needed = [spec.name for spec in specs if spec.needed and not spec.secret]
    return found | ({"required": needed} if needed else {})


def _option(spec: OptionSpec) -> dict[str, Any]:
    word: dict[str, Any] = {"type": "string"} | ({"enum": list(spec.choices)} if spec.choices else {})
    if spec.is_url:
        word["format"] = "uri"
    bounds = {key: value for key, value in (("minimum", spec.least), ("maximum", spec.most)) if value is not None}
    kinds: dict[str, dict[str, Any]] = {
        "text": word,
        "texts": {"anyOf": [word, {"type": "array", "items": word, "minItems": 0 if spec.default == () else 1}]},
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
    found = {**kinds[spec.kind], "description": spec.about}
    if spec.default is not None:
        found["default"] = list(spec.default) if isinstance(spec.default, tuple) else spec.default
    return found | ({"writeOnly": True} if spec.secret else {})


def _tidied(node: Any) -> Any:
    """pydantic's schema with limits as JSON Schema keywords, without null (TOML has none), defaults as in a file."""
    if isinstance(node, list):
        return [_tidied(one) for one in node if one != {"type": "null"}]
    if not isinstance(node, dict):
        return node
    found: dict[str, Any] = {_KEYWORDS.get(str(key), str(key)): _tidied(value) for key, value in node.items()}
    if len(found.get("anyOf", ())) == 1:
        found = found.pop("anyOf")[0] | found
    if "default" in found:
        found["default"] = _default(found)
        if found["default"] is None or "$ref" in found:
            del found["default"]
    if "properties" in found:  # titles would only repeat the keys
        found["properties"] = {key: _untitled(one) for key, one in found["properties"].items()}
    return found


def _default(node: dict[str, Any]) -> Any:
    value = node["default"]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if node.get("type") == "string" and is_number:
        return format_duration(value)
    return float(value) if node.get("type") == "number" and isinstance(value, str) else value


def _untitled(node: Any) -> Any:
    found = {key: value for key, value in node.items() if key != "title"}
    if "anyOf" in found:  # applies to the list; it is placed next to both
        found = {key: value for key, value in found.items() if key not in {"minLength", "maxLength"}}
    return found
