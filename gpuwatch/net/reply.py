"""What comes back from a server, or why nothing does."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.net.redaction import redact


class Reply(msgspec.Struct, frozen=True):
    """A whole answer, whatever its status. Header names are lower-case; the body is decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Reply({self.status}, {len(self.body)} bytes)"  # bodies and headers may hold secrets


class NetError(GpuwatchError):
    """No answer. The text is one line, redacted: who was asked, and what went wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(redact(message))


class NotSent(NetError):
    """The request never left: no such host, refused, TLS, no free connection. Nothing can have happened there."""


class NoAnswer(NetError):
    """The request left, and no whole answer came: a timeout, a reset, a cut or oversized body. It may have worked."""


class UnusableAnswer(NoAnswer):
    """An answer came that is oversized or wrongly compressed: asking again would bring the same."""
