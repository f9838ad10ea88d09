"""The loopback server of the conformance kit, for all tests."""

from __future__ import annotations

from gpuwatch.testing.loopback import Answer, ReceivedRequest, ReplyWriter, Server, serving

__all__ = ["Answer", "ReceivedRequest", "ReplyWriter", "Server", "serving"]
