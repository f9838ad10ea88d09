"""What providers and plugins declare, as JSON Schema: an editor completes `[providers.NAME.options]`, too."""

from __future__ import annotations

from typing import Any

from gpuwatch import notifiers, providers
from gpuwatch.ports.declarations import OptionSpec
from gpuwatch.ports.settings import Option


def declare(schema: dict[str, Any]) -> None:
    """Add to the schema of the settings: each provider by its name, each channel that a plugin adds."""
    by_name = schema["properties"]["providers"]
    by_name["properties"] = {name: _provider(name) for name in providers.names()}
    channels = schema["$defs"]["NotifyTable"]["properties"]
    for name in notifiers.plugins():
        info = notifiers.info(name)
        channels[name] = {"description": info.title, **_table(info.options)}


def _provider(name: str) -> dict[str, Any]:
    info = providers.info(name)
    options = {"description": "What this provider alone knows.", **_table(info.options)}
    return {"$ref": "#/$defs/ProviderTable", "description": info.title, "properties": {"options": options}}


def _table(specs: tuple[OptionSpec, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "object",
        "properties": {spec.name: _option(spec) for spec in specs},
        "additionalProperties": False,
    }
    needed = [spec.name for spec in specs if spec.needed]
    return found | ({"required": needed} if needed else {})


def _option(spec: OptionSpec) -> dict[str, Any]:
    word: dict[str, Any] = {"type": "string"} | ({"enum": list(spec.choices)} if spec.choices else {})
    if spec.is_url:
        word["format"] = "uri"
    kinds: dict[str, dict[str, Any]] = {
        "text": word,
        "texts": {"anyOf": [word, {"type": "array", "items": word, "minItems": 1}]},
        "id": {"type": ["string", "integer"]},
        "number": {"type": "number"} | _bounds(spec),
        "integer": {"type": "integer"} | _bounds(spec),
        "switch": {"type": "boolean"},
    }
    found = {**kinds[spec.kind], "description": spec.about}
    if spec.default is not None:
        found["default"] = _plain(spec.default)
    return found | ({"writeOnly": True} if spec.secret else {})


def _bounds(spec: OptionSpec) -> dict[str, float]:
    found = {"minimum": spec.least, "maximum": spec.most}
    return {key: value for key, value in found.items() if value is not None}


def _plain(value: Option) -> Any:
    return list(value) if isinstance(value, tuple) else value
