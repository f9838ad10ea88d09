"""The OpenAPI 3.1 document, generated from the resources, the actions and their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from gpuwatch import __version__
from gpuwatch.domain.market.json_view import JsonView
from gpuwatch.web.api.api_actions import ACTIONS, ApiAction
from gpuwatch.web.api.resources import ITEMS, PREFIX, RESOURCES, ItemResource, Resource

_STATUS_TEXTS = {
    "400": "Malformed request.", "401": "Log in, or send a token.", "403": "The token lacks the scope.",
    "404": "Not found.", "409": "Already decided the other way, or refused.",
    "413": "The body is too large.", "421": "The Host is not trusted.", "422": "A value is invalid.",
    "429": "Too many wrong passwords.", "503": "The database or the provider is unavailable.",
}  # fmt: skip
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"}, "title": {"type": "string"},
        "status": {"type": "integer"}, "detail": {"type": "string"},
    },
}  # fmt: skip


_VIEWS = [*(resource.item for resource in (*RESOURCES, *ITEMS)), *(action.answer for action in ACTIONS)]
_REFERENCE = "#/components/schemas/{name}"
_UNITS = {  # the ending of a name → its unit; the longest ending first
    "_usd_gpu_hour": "USD per GPU-hour.",
    "_usd_hour": "USD per hour.",
    "_usd_gb_month": "USD per GB and month.",
    "_usd_gb": "USD per GB.",
    "_usd": "USD.",
    "_gib": "GiB.",
    "_gb": "GB.",
    "_mbps": "Mbit/s.",
    "_gbps": "Gbit/s.",
    "_hours": "Hours.",
    "_percent": "Percent.",
    "_seconds": "Seconds.",
    "_s": "Seconds.",
}


@cache
def openapi_json() -> bytes:
    """Return the document as it is served; made at the first request, because a start would wait 5 ms for it."""
    return msgspec.json.encode(openapi())


def openapi() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, Any] = {f"{PREFIX}/{resource.name}": {"get": _list(resource)} for resource in RESOURCES}
    paths |= {PREFIX + item.path: {"get": _item(item)} for item in ITEMS}
    paths |= {PREFIX + action.path: {"post": _action(action)} for action in ACTIONS}
    paths[f"{PREFIX}/events"] = {"get": _events()}
    paths[f"{PREFIX}/session"] = {"post": _open_session(), "delete": _close_session()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpuwatch",
            "version": __version__,
            "description": "The JSON that gpuwatch's commands print, and their actions. docs/web.md",
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, **view_schemas(_VIEWS)},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _list(resource: Resource) -> dict[str, Any]:
    body = {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": {"$ref": _REFERENCE.format(name=resource.item.__name__)}},
            "next": {"type": ["string", "null"], "description": "URL of the next page; null on the last one."},
        },
    }
    return {
        "operationId": f"list_{resource.name}",
        "summary": resource.summary,
        "parameters": _parameters(resource.parameters),
        "responses": _read_responses(body),
    }


def _item(item: ItemResource) -> dict[str, Any]:
    return {
        "operationId": f"get_{item.path.split('/')[1]}",
        "summary": item.summary,
        "parameters": [_path_parameter("name"), *_parameters(item.parameters)],
        "responses": _read_responses({"$ref": _REFERENCE.format(name=item.item.__name__)}),
    }


def _read_responses(body: dict[str, Any]) -> dict[str, Any]:
    not_modified = {"304": {"description": "The client's copy is current (If-None-Match)."}}
    return _responses(body) | not_modified | _problems("400", "401", "403", "404", "421", "422", "503")


def view_schemas(views: Sequence[type[JsonView]]) -> dict[str, Any]:
    """Return views and their parts by name, as JSON Schema; a field whose name ends with a unit says so."""
    _, schemas = msgspec.json.schema_components(views, ref_template=_REFERENCE)
    for schema in schemas.values():
        for name, described in schema.get("properties", {}).items():
            unit = next((text for ending, text in _UNITS.items() if name.endswith(ending)), None)
            if unit is not None:
                described["description"] = f"{unit} {described.get('description', '')}".rstrip()
    return dict(schemas)


def _parameters(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    (_,), components = msgspec.json.schema_components([kind])
    properties: dict[str, Any] = components[kind.__name__]["properties"]
    required = components[kind.__name__].get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _inline_refs(schema, components)}
        for name, schema in properties.items()
    ]


def _inline_refs(schema: dict[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of one value: without null, which a query states by omission, and with its type in place."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if choices and "$ref" in choices[0]:
        component: dict[str, Any] = components[choices[0]["$ref"].rpartition("/")[2]]
        return component
    return (
        choices[0]
        if choices
        else {key: value for key, value in schema.items() if key != "default" or value is not None}
    )


def _action(action: ApiAction) -> dict[str, Any]:
    schema = msgspec.json.schema(action.body)
    (body,) = schema["$defs"].values()
    described: dict[str, Any] = {
        "operationId": action.path.strip("/").replace("/", "_").replace("{id}_", ""),
        "summary": f"{action.summary} Scope: {action.scope}.",
        "responses": _responses({"$ref": _REFERENCE.format(name=action.answer.__name__)})
        | _problems("400", "401", "403", "404", "409", "413", "421", "422", "503"),
        "requestBody": {"required": bool(body.get("required")), "content": {"application/json": {"schema": body}}},
    }
    if "{id}" in action.path:
        described["parameters"] = [_path_parameter("id")]
    return described


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": 60}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _events() -> dict[str, Any]:
    return {
        "operationId": "events",
        "summary": "Server-sent events: id, event = kind, data = JSON of an alert. Last-Event-ID resumes.",
        "responses": {
            "200": {"description": "A stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
            **_problems("401", "403", "421"),
        },
    }


def _open_session() -> dict[str, Any]:
    names = ("code", "password", "token")
    body = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"type": "string"} for name in names},
    }
    opened = {
        "type": "object",
        "required": ["scopes", "csrf_token"],
        "properties": {"scopes": {"type": "array", "items": {"type": "string"}}, "csrf_token": {"type": "string"}},
    }
    return {
        "operationId": "open_session",
        "summary": "Log in with one of them: sets a cookie, and returns the token for the header X-CSRF-Token.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": _responses(opened) | _problems("400", "401", "413", "421", "422", "429"),
    }


def _close_session() -> dict[str, Any]:
    token = {"name": "X-CSRF-Token", "in": "header", "required": True, "schema": {"type": "string"}}
    return {
        "operationId": "close_session",
        "summary": "Log out.",
        "parameters": [token],
        "responses": {"204": {"description": "Done."}, **_problems("403", "421")},
    }


def _responses(body: dict[str, Any]) -> dict[str, Any]:
    return {"200": {"description": "Done.", "content": {"application/json": {"schema": body}}}}


def _problems(*statuses: str) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _STATUS_TEXTS[status], "content": content} for status in statuses}
