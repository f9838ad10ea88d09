"""A relay on loopback between an adapter and its stand-in: it loses, replaces or spoils answers."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_plus, urlsplit

from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving

MOST_REQUESTS: Final = 300  # per test: an adapter that sends more is in a loop
_NOT_PASSED_ON: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
_DEEPEST: Final = 4
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]{12,}={0,2}")
Ending = Callable[[ReplyWriter], None]  # writes the adapter's answer


class RelayRule(NamedTuple):
    """How matching requests are handled."""

    matching: re.Pattern[str]
    ending: Ending
    carried_out: bool  # the request still reaches the stand-in
    spared: list[int]  # number of requests that pass first; one value, counted down


class Relay:
    """Passes requests on to `to`, except as the test sets. `requests` has all of them, in order."""

    def __init__(self, to: str) -> None:
        self.url = ""
        self.requests: list[ReceivedRequest] = []
        self.bodies: list[bytes] = []  # of the forwarded answers
        self.spoil: Callable[[bytes], bytes] | None = None  # applied to every 2xx body
        self._to = to
        self._rules: list[RelayRule] = []

    def fail(self, matching: str, status: int, body: bytes = b"", *, spare: int = 0, **headers: str) -> None:
        """From now on, answer requests that match "METHOD /target body" with this, without the stand-in."""
        self._rules.append(
            RelayRule(
                re.compile(matching, re.DOTALL), lambda wire: wire.answer(status, body, **headers), False, [spare]
            )
        )

    def lose(self, matching: str, ending: Ending = ReplyWriter.close, *, carried_out: bool = True) -> None:
        """From now on, lose the answers to matching requests."""
        self._rules.append(RelayRule(re.compile(matching, re.DOTALL), ending, carried_out, [0]))

    def restore(self) -> None:
        """Pass everything on again."""
        self._rules.clear()

    def count(self, matching: str) -> int:
        """Return the number of matching requests."""
        return sum(1 for request in self.requests if re.search(matching, line_of(request), re.DOTALL))

    def answer(self, request: ReceivedRequest, wire: ReplyWriter) -> None:
        """Handle one request."""
        if len(self.requests) >= MOST_REQUESTS:
            return wire.answer(429, b"the test allows no more requests")
        self.requests.append(request)
        rule = self._rule_for(line_of(request))
        if rule is None:
            return self._pass_on(request, wire)
        if rule.carried_out:
            self._asked(request)
        return rule.ending(wire)

    def _rule_for(self, line: str) -> RelayRule | None:
        for rule in self._rules:
            if rule.matching.search(line):
                if rule.spared[0] <= 0:
                    return rule
                rule.spared[0] -= 1
        return None

    def _pass_on(self, request: ReceivedRequest, wire: ReplyWriter) -> None:
        status, headers, body = self._asked(request)
        body = body.replace(self._to.encode(), self.url.encode())  # so that links to a next page lead here, too
        self.bodies.append(body)
        if self.spoil is not None and 200 <= status < 300:
            body = self.spoil(body)
        wire.answer(status, body, **headers)

    def _asked(self, request: ReceivedRequest) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection(urlsplit(self._to).netloc, timeout=30)
        try:
            headers = {name: value for name, value in request.headers.items() if name not in _NOT_PASSED_ON}
            connection.request(request.method, request.target, request.body or None, headers)
            response = connection.getresponse()
            passed = {name.lower(): value for name, value in response.getheaders()}
            kept = {name.replace("-", "_"): value for name, value in passed.items() if name not in _NOT_PASSED_ON}
            return response.status, kept, response.read()
        finally:
            connection.close()


def line_of(request: ReceivedRequest) -> str:
    """Return a request as text for the patterns of `Bench.creates` and `Relay.fail`."""
    return f"{request.method} {request.target} {request.body.decode('utf-8', 'replace')}"


def carries(request: ReceivedRequest, text: str) -> bool:
    """Whether a request contains a text: plain, quoted for a form, or in Base64, even nested."""
    line = line_of(request).replace("\\/", "/").replace("\\n", "\n")
    left = [line, unquote(line), unquote_plus(line)]
    for _ in range(_DEEPEST):
        if any(text in one for one in left):
            return True
        left = [plain for one in left for word in _BASE64.findall(one) if (plain := _decoded(word))]
    return False


def _decoded(word: str) -> str:
    try:
        return b64decode(word).decode("utf-8", "replace")
    except ValueError:
        return ""


@contextmanager
def relaying(to: str) -> Iterator[Relay]:
    """Run a relay to a stand-in's address, until the block ends."""
    relay = Relay(to)
    with serving(relay.answer) as server:
        relay.url = server.url
        yield relay
