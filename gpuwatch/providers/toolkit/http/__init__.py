"""The one way out over HTTP: an overall deadline, a cap on decoded bytes, redaction, and whether a request was sent.

httpx is imported by `client` alone, and that only when `Http` is first asked for.

What the environment decides: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` are obeyed (never for loopback),
`SSL_CERT_FILE` and `SSL_CERT_DIR` replace the trusted certificates. `.netrc` is not read, cookies are not kept,
and nothing turns certificate checks off.
"""

from __future__ import annotations

import sys

# httpx loads its command line, with rich and click, wherever these are installed: 60 ms for nothing.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
