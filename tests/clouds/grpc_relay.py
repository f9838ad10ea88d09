"""The conformance suites' relay for a gRPC provider: calls are forwarded as bytes; a status replaces HTTP's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import grpc
from nebius.api.nebius.common import v1 as common
from nebius.base._service_error import pbrpc_status_of_errors

from gpuwatch.testing.loopback import ReceivedRequest
from gpuwatch.testing.relay import MAX_REQUESTS, Relay, request_text

# source: google.rpc.Code, which names the HTTP status of each; 307, 402, 408 and 502 have none, so the nearest is used.
_CODES: Final = {
    307: grpc.StatusCode.UNIMPLEMENTED, 400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED,
    402: grpc.StatusCode.FAILED_PRECONDITION, 403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND, 408: grpc.StatusCode.DEADLINE_EXCEEDED, 409: grpc.StatusCode.ALREADY_EXISTS,
    422: grpc.StatusCode.INVALID_ARGUMENT, 429: grpc.StatusCode.RESOURCE_EXHAUSTED, 500: grpc.StatusCode.INTERNAL,
    502: grpc.StatusCode.UNAVAILABLE, 503: grpc.StatusCode.UNAVAILABLE,
}  # fmt: skip


class GrpcRule(NamedTuple):
    """How matching calls are handled."""

    matching: re.Pattern[str]
    status: int | None  # None: the connection is lost
    body: bytes
    carried_out: bool
    skip_count: list[int]


class GrpcRelay(Relay, grpc.GenericRpcHandler):  # type: ignore[misc]
    """`requests` has "POST", "/service/Method" and the message's bytes of each call."""

    def __init__(self, to: str) -> None:
        super().__init__(to)
        self._channel = grpc.insecure_channel(urlsplit(to).netloc)
        self._planned: list[GrpcRule] = []

    def fail(self, matching: str, status: int, body: bytes = b"", *, skip: int = 0, **headers: str) -> None:
        """From now on, matching calls get this status, or these bytes as their answer."""
        self._planned.append(GrpcRule(re.compile(matching, re.DOTALL), status, body, False, [skip]))

    def lose(self, matching: str, ending: object = None, *, carried_out: bool = True) -> None:
        """From now on, the answers to matching calls are lost."""
        self._planned.append(GrpcRule(re.compile(matching, re.DOTALL), None, b"", carried_out, [0]))

    def restore(self) -> None:
        """Forward everything again."""
        self._planned.clear()

    def service(self, details: Any) -> Any:
        """gRPC's hook: every method is forwarded, as bytes."""

        def answer(message: bytes, context: Any) -> bytes:
            return self._relayed(details.method, message, context)

        return grpc.unary_unary_rpc_method_handler(answer)

    def _relayed(self, method: str, message: bytes, context: Any) -> bytes:
        metadata = {one.key: one.value for one in context.invocation_metadata()}
        request = ReceivedRequest("POST", method, metadata, message, message)
        if len(self.requests) >= MAX_REQUESTS:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the test allows no more requests")
        self.requests.append(request)
        rule = self._planned_for(request_text(request))
        if rule is not None and not rule.carried_out:
            return _ended(rule, context)
        body = self._passed(method, message, metadata, context)
        if rule is not None:
            return _ended(rule, context)
        self.bodies.append(body)
        return body if self.corrupt is None else self.corrupt(body)

    def _passed(self, method: str, message: bytes, metadata: dict[str, str], context: Any) -> bytes:
        kept = [(name, value) for name, value in metadata.items() if name in {"authorization", "x-idempotency-key"}]
        try:
            return bytes(self._channel.unary_unary(method)(message, metadata=kept, timeout=10))
        except grpc.RpcError as error:
            context.set_trailing_metadata(
                tuple((one.key, one.value) for one in error.trailing_metadata() if one.key.startswith("grpc-status-d"))
            )
            context.abort(error.code(), error.details())
            raise

    def _planned_for(self, line: str) -> GrpcRule | None:
        for rule in self._planned:
            if rule.matching.search(line):
                if rule.skip_count[0] <= 0:
                    return rule
                rule.skip_count[0] -= 1
        return None


def _ended(rule: GrpcRule, context: Any) -> bytes:
    if rule.status is None:
        context.abort(grpc.StatusCode.UNAVAILABLE, "Connection reset by peer")
    if rule.status == 200:
        return rule.body
    code, text = _CODES[rule.status or 500], rule.body.decode("utf-8", "replace")
    if rule.status == 429:
        error = common.ServiceError(service="x", code="TooManyRequests", too_many_requests=common.TooManyRequests())
        status = pbrpc_status_of_errors(code.value[0], text, error)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, text)
    raise AssertionError("abort raises")


@contextmanager
def relaying_grpc(to: str) -> Iterator[GrpcRelay]:
    """Run a relay to a stand-in's address, until the block ends."""
    relay = GrpcRelay(to)
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((relay,))
    relay.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield relay
    finally:
        server.stop(None).wait()
        relay._channel.close()
