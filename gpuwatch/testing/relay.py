"""A relay on loopback between an adapter and its stand-in: it loses, replaces or spoils answers."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_plus, urlsplit

from gpuwatch.testing.faults import RETRY_AFTER_S, ServerFault
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving

MAX_REQUESTS: Final = 300  # per test: an adapter that sends more is in a loop
_CONNECTION_HEADERS: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
_MAX_NESTING: Final = 4
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]{12,}={0,2}")
Ending = Callable[[ReplyWriter], None]  # writes the adapter's answer


class RelayRule(NamedTuple):
    """How matching requests are handled."""

    matching: re.Pattern[str]
    ending: Ending
    carried_out: bool  # the request still reaches the stand-in
    skip_count: list[int]  # number of requests that pass first; one value, counted down


class Relay:
    """Passes requests on to `target_url`, except as the test sets. `requests` has all of them, in order."""

    def __init__(self, target_url: str) -> None:
        self.url = ""
        self.requests: list[ReceivedRequest] = []
        self.bodies: list[bytes] = []  # of the forwarded answers
        self.corrupt: Callable[[bytes], bytes] | None = None  # applied to every 2xx body
        self._target_url = target_url
        self._rules: list[RelayRule] = []

    def fail(self, matching: str, status: int, body: bytes = b"", *, skip: int = 0, **headers: str) -> None:
        """From now on, answer requests that match "METHOD /target body" with this, without the stand-in."""
        self._rules.append(
            RelayRule(
                re.compile(matching, re.DOTALL), lambda writer: writer.answer(status, body, **headers), False, [skip]
            )
        )

    def lose(self, matching: str, ending: Ending = ReplyWriter.close, *, carried_out: bool = True) -> None:
        """From now on, lose the answers to matching requests."""
        self._rules.append(RelayRule(re.compile(matching, re.DOTALL), ending, carried_out, [0]))

    def fault(self, matching: str, fault: ServerFault) -> None:
        """From now on, matching requests get this answer, or none; they do not reach the stand-in."""
        if fault.ending is None:
            self.fail(matching, fault.status, fault.body, retry_after=f"{RETRY_AFTER_S:g}")
        else:
            self.lose(matching, fault.ending, carried_out=False)

    def restore(self) -> None:
        """Pass everything on again."""
        self._rules.clear()

    def count(self, matching: str) -> int:
        """Return the number of matching requests."""
        return sum(1 for request in self.requests if re.search(matching, request_text(request), re.DOTALL))

    def answer(self, request: ReceivedRequest, writer: ReplyWriter) -> None:
        """Handle one request."""
        if len(self.requests) >= MAX_REQUESTS:
            return writer.answer(429, b"the test allows no more requests")
        self.requests.append(request)
        rule = self._rule_for(request_text(request))
        if rule is None:
            return self._forward(request, writer)
        if rule.carried_out:
            self._fetch(request)
        return rule.ending(writer)

    def _rule_for(self, line: str) -> RelayRule | None:
        for rule in self._rules:
            if rule.matching.search(line):
                if rule.skip_count[0] <= 0:
                    return rule
                rule.skip_count[0] -= 1
        return None

    def _forward(self, request: ReceivedRequest, writer: ReplyWriter) -> None:
        status, headers, body = self._fetch(request)
        body = body.replace(self._target_url.encode(), self.url.encode())  # so that links to a next page lead here, too
        self.bodies.append(body)
        if self.corrupt is not None and 200 <= status < 300:
            body = self.corrupt(body)
        writer.answer(status, body, **headers)

    def _fetch(self, request: ReceivedRequest) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection(urlsplit(self._target_url).netloc, timeout=30)
        try:
            headers = {name: value for name, value in request.headers.items() if name not in _CONNECTION_HEADERS}
            connection.request(request.method, request.target, request.body or None, headers)
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            forwarded = {
                name.replace("-", "_"): value for name, value in received.items() if name not in _CONNECTION_HEADERS
            }
            return response.status, forwarded, response.read()
        finally:
            connection.close()


def request_text(request: ReceivedRequest) -> str:
    """Return a request as text for the patterns of `Bench.creates` and `Relay.fail`."""
    return f"{request.method} {request.target} {request.body.decode('utf-8', 'replace')}"


def contains_text(request: ReceivedRequest, text: str) -> bool:
    """Whether a request contains a text: plain, quoted for a form, or in Base64, even nested."""
    line = request_text(request).replace("\\/", "/").replace("\\n", "\n")
    variants = [line, unquote(line), unquote_plus(line)]
    for _ in range(_MAX_NESTING):
        if any(text in variant for variant in variants):
            return True
        variants = [
            plain for variant in variants for encoded in _BASE64.findall(variant) if (plain := _decode_base64(encoded))
        ]
    return False


def _decode_base64(encoded: str) -> str:
    try:
        return b64decode(encoded).decode("utf-8", "replace")
    except ValueError:
        return ""


@contextmanager
def relaying(target_url: str) -> Iterator[Relay]:
    """Run a relay to a stand-in's address, until the block ends."""
    relay = Relay(target_url)
    with serving(relay.answer) as server:
        relay.url = server.url
        yield relay
