"""What was sent to the routes of `respx_mock`, respx's fixture.

A unit test names the routes of a provider, a channel or a chat, with its recorded or documented answers:

    pytestmark = pytest.mark.respx(base_url="https://api.acme.example")

    def test_an_order_names_its_image(respx_mock: respx.MockRouter) -> None:
        created = respx_mock.post("/pods").respond(201, json={"id": "7"})
        with BENCH.pointed_at("https://api.acme.example") as adapter:
            ...
        assert sent(created.calls) == [("POST", "/pods", {"image": "x/y"})]

The mark alone, without a route, says that nothing is sent. A request without a route fails the test, and so does a
route without a request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import respx


def sent(calls: Iterable[respx.models.Call]) -> list[tuple[str, str, Any]]:
    """Return the requests in order: method, path with its query, and the JSON of the body or None."""
    return [
        (request.method, request.url.raw_path.decode(), json.loads(request.content) if request.content else None)
        for request in (call.request for call in calls)
    ]
