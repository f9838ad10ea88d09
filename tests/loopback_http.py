"""The loopback server of the conformance kit, for all tests."""

from __future__ import annotations

from gpuwatch.testing.loopback import Answer, Request, Server, Wire, serving

__all__ = ["Answer", "Request", "Server", "Wire", "serving"]
