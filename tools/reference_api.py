"""The blocks of docs/http.md and docs/json.md, from the API's document and the views that commands print."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import gpuwatch.app
from gpuwatch.domain.market.json_view import JsonView
from gpuwatch.web.api.openapi import openapi, view_schemas
from gpuwatch.web.api.resources import ListParameters

# view → the commands that print it
_PRINTED_BY = {
    "CheckView": ("gpuwatch check --json",),
    "WatchStatusView": ("gpuwatch watches --json",),
    "WatchDetailsView": ("gpuwatch watches NAME --json",),
    "PastWhyView": ("gpuwatch watches NAME --why TIME --json",),
    "RehearsalView": ("gpuwatch watches rehearse NAME --json",),
    "OfferView": ("gpuwatch offers --json",),
    "OfferGroupView": ("gpuwatch offers --group-by provider --json",),
    "MarketView": ("gpuwatch market --json",),
    "ListedLaunchView": ("gpuwatch launches --json",),
    "CostReportView": ("gpuwatch launches costs --json",),
    "ApprovalView": ("gpuwatch approvals --json",),
    "EventView": ("gpuwatch alerts --json",),
    "SilenceView": ("gpuwatch alerts silence --list --json",),
    "ShareLink": ("gpuwatch share gpu NAME --json",),
    "ProviderStatusView": ("gpuwatch providers --json",),
    "AccountView": ("gpuwatch providers accounts --json",),
    "AvoidedMachineView": ("gpuwatch providers machines --json",),
    "JobView": ("gpuwatch jobs --json",),
}
_LIST_PARAMETERS = set(ListParameters.__struct_fields__)


def http_lines() -> Iterator[str]:
    """Return the block of docs/http.md."""
    document = openapi()
    yield from ("| request | does |", "|---|---|")
    requests = [(path, method, one) for path, item in document["paths"].items() for method, one in item.items()]
    for path, method, described in requests:
        yield f"| [`{method.upper()} {path}`](#{_anchor(f'{method} {path}')}) | {described['summary']} |"
    for path, method, described in requests:
        yield from ("", f"## `{method.upper()} {path}`", "", described["summary"])
        yield from _parameters(described)
        yield from _answer(described)


def json_lines() -> Iterator[str]:
    """Return the block of docs/json.md."""
    schemas = _schemas()
    objects = {name: schema for name, schema in schemas.items() if "properties" in schema}
    printed = [name for name in _PRINTED_BY if name in objects]
    yield from ("| command | prints |", "|---|---|")
    for name in printed:
        for command in _PRINTED_BY[name]:
            yield f"| `{command}` | [{_title(name)}](#{_anchor(_title(name))}) |"
    for name in [*printed, *sorted(set(objects) - set(printed))]:
        schema = objects[name]
        yield from ("", f"## {_title(name)}", "", schema.get("description", "").partition("\n")[0])
        yield from ("", "| field | type | meaning |", "|---|---|---|")
        for field, described in schema["properties"].items():
            meaning = described.get("description", "").replace("|", "\\|").replace("\n", " ")
            yield f"| `{field}` | {_type(described, schemas, '')} | {meaning} |"


def _schemas() -> dict[str, Any]:
    """Return every view of the package with its parts."""
    for module in pkgutil.walk_packages(gpuwatch.app.__path__, "gpuwatch.app."):
        if "skeleton" not in module.name:
            importlib.import_module(module.name)
    views = {view.__name__: view for view in _below(JsonView) if view.__module__.startswith("gpuwatch.")}
    return view_schemas([views[name] for name in sorted(views)])


def _below(kind: type[JsonView]) -> Iterator[type[JsonView]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _parameters(described: dict[str, Any]) -> Iterator[str]:
    rows = [
        (one["name"], one["schema"])
        for one in described.get("parameters", ())
        if one["in"] == "query" and one["name"] not in _LIST_PARAMETERS
    ]
    if rows:
        yield from ("", "| parameter | type | default |", "|---|---|---|")
        for name, schema in rows:
            default = schema.get("default")
            yield f"| `{name}` | {_type(schema, {}, 'json.md')} | {f'`{default}`' if default is not None else '–'} |"
    body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if body.get("properties"):
        yield from ("", "| field of the body | type | meaning |", "|---|---|---|")
        for name, schema in body["properties"].items():
            yield f"| `{name}` | {_type(schema, {}, 'json.md')} | {schema.get('description', '')} |"


def _answer(described: dict[str, Any]) -> Iterator[str]:
    content = described["responses"].get("200", {}).get("content", {}).get("application/json")
    if content is not None:
        schema = content["schema"]
        items = schema.get("properties", {}).get("items")
        if items is not None:
            yield from ("", f"Answer: `items`, each {_type(items['items'], _schemas(), 'json.md')}, and `next`.")
        elif "$ref" in schema:
            yield from ("", f"Answer: {_type(schema, _schemas(), 'json.md')}.")
        else:
            yield from ("", "Answer: " + ", ".join(f"`{name}`" for name in schema["properties"]) + ".")
    failures = [status for status in described["responses"] if status >= "400"]
    yield from ("", "Errors: " + ", ".join(failures) + ".")


def _type(schema: dict[str, Any], schemas: dict[str, Any], page: str) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        target = schemas.get(name, {})
        if "properties" in target:
            return f"[{_title(name)}]({page}#{_anchor(_title(name))})"
        return _type(target, schemas, page) if target else "string"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one, schemas, page) for one in schema["anyOf"]))
    if "enum" in schema:
        return " · ".join(f"`{one}`" for one in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items') or {}, schemas, page)}"
    if schema.get("format") == "date-time":
        return "time (UTC)"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _title(name: str) -> str:
    words = re.findall(r"[A-Z][a-z0-9]+|[A-Z]+(?=[A-Z]|$)", name.removesuffix("View"))
    return " ".join(words).capitalize().replace("gpu", "GPU").replace("Gpu", "GPU")


def _anchor(text: str) -> str:
    """The address of a heading, as GitHub and the site make it."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", text.lower()).strip())
