"""A network that is one function, request → response, with httpx's types."""

from __future__ import annotations

from collections.abc import Callable

import httpcore
import httpx

from gpuwatch.providers.toolkit.http.address import Address


class HandledTransport:
    """A `Transport`. An error of httpx that the function raises arrives as httpcore's of the same name."""

    def __init__(self, handler: Callable[[httpx.Request], httpx.Response]) -> None:
        self._handler = handler

    def send(self, request: httpcore.Request, address: Address) -> httpcore.Response:
        body = b"".join(request.stream)  # type: ignore[arg-type]  # Iterable[bytes] on the synchronous side
        url = f"{address}?{address.query}" if address.query else str(address)
        try:
            answer = self._handler(
                httpx.Request(
                    request.method.decode(), url, headers=request.headers, content=body, extensions=request.extensions
                )
            )
        except httpx.TransportError as error:
            raise getattr(httpcore, type(error).__name__)(str(error)) from error
        return httpcore.Response(answer.status_code, headers=answer.headers.raw, content=answer.content)

    def close(self) -> None:
        """Do nothing: there is no connection."""
