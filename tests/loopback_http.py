"""The loopback server of the conformance kit, for all tests."""

from __future__ import annotations

import ssl

from gpuwatch.testing.loopback import Answer, ReceivedRequest, ReplyWriter, Server, serving

__all__ = ["NO_CERTIFICATES", "Answer", "ReceivedRequest", "ReplyWriter", "Server", "serving"]

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For httpx, on loopback: a client or a single request otherwise loads every trusted certificate, for 25 ms."""
