"""GET of a resource: parameters, a page of items, ETag."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuwatch.errors import UsageError
from gpuwatch.web.api.resources import RESOURCES, ListParameters, Resource
from gpuwatch.web.problems import HttpProblem, validation_text

if TYPE_CHECKING:
    from gpuwatch.web.context import WebContext

PREFIX = "/api/v1"
_IN_QUERY = frozenset({"token", "access_token", "api_key", "authorization", "password", "code"})


def list_routes(context: WebContext) -> list[Route]:
    """Return one route for each resource."""
    return [Route(f"{PREFIX}/{resource.name}", _reads(context, resource), methods=["GET"]) for resource in RESOURCES]


def _reads(context: WebContext, resource: Resource) -> Callable[[Request], Awaitable[Response]]:
    async def read(request: Request) -> Response:
        query = parameters(request, resource.parameters)
        body = await run_in_threadpool(_page, context, resource, query)
        return with_etag(request, body)

    return read


def parameters(request: Request, kind: type[ListParameters]) -> ListParameters:
    """Decode the query by its type. Raises HttpProblem: 400 (it contains a secret), 422."""
    pairs = request.query_params.multi_items()
    if any(name.lower() in _IN_QUERY for name, _ in pairs):
        raise HttpProblem(400, "do not send a secret in the URL: use Authorization: Bearer TOKEN")
    values = dict(pairs)
    if len(values) < len(pairs):
        raise HttpProblem(422, "expected each parameter only once")
    if any(value.lower() == "null" for value in values.values()):  # the decoder would treat it as a missing value
        raise HttpProblem(422, "expected a value; omit the parameter for none")
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise HttpProblem(422, validation_text(error)) from None


def _page(context: WebContext, resource: Resource, query: ListParameters) -> bytes:
    try:
        answer = resource.read(context.settings, query)
    except UsageError as error:  # each value is valid by the document: there is no such GPU or provider
        raise HttpProblem(404, str(error).removeprefix("--")) from None  # parameters have no dashes
    end = query.offset + query.limit
    items = answer.items[query.offset : end]
    following = _next(resource, query, end) if end < len(answer.items) else None
    return msgspec.json.encode({"items": items, "next": following, **answer.extra})


def _next(resource: Resource, query: ListParameters, offset: int) -> str:
    """Return the address of the next page."""
    defaults = resource.parameters()
    values: Mapping[str, Any] = msgspec.structs.asdict(msgspec.structs.replace(query, offset=offset))
    changed = {name: value for name, value in values.items() if value != getattr(defaults, name)}
    return f"{PREFIX}/{resource.name}?{urlencode(changed)}"


def with_etag(request: Request, body: bytes) -> Response:
    """Return the JSON, or 304 if the client already has it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    client_tags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if tag in client_tags or "*" in client_tags:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, media_type="application/json", headers={"ETag": tag})
