"""The one way out over HTTP: an overall deadline, a cap on decoded bytes, redaction, and whether a request was sent.

httpx is imported by `net.http` alone, and that only when `Http` is first asked for.

What the environment decides: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` are obeyed (never for loopback),
`SSL_CERT_FILE` and `SSL_CERT_DIR` replace the trusted certificates. `.netrc` is not read, cookies are not kept,
and nothing turns certificate checks off.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpuwatch.net.redaction import keep_secret, redact
from gpuwatch.net.reply import NetError, NoAnswer, NotSent, Reply, UnusableAnswer

if TYPE_CHECKING:
    from gpuwatch.net.http import Arriving, Http, Options

__all__ = [
    "Arriving", "Http", "NetError", "NoAnswer", "NotSent", "Options", "Reply", "UnusableAnswer", "keep_secret",
    "redact",
]  # fmt: skip

# httpx loads its command line, with rich and click, wherever these are installed: 60 ms for nothing.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]


def __getattr__(name: str) -> object:
    if name in {"Arriving", "Http", "Options"}:
        from gpuwatch.net import http  # noqa: PLC0415 - httpx costs 80 ms: not before someone asks a server

        return getattr(http, name)
    raise AttributeError(name)
