"""How everything that gpuwatch posts to its owner is signed: hooks and alerts alike."""

from __future__ import annotations

import hashlib
import hmac

TIMESTAMP_HEADER = "X-Gpuwatch-Timestamp"
SIGNATURE_HEADER = "X-Gpuwatch-Signature-256"


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """`sha256=` and HMAC-SHA256 in hex over the timestamp, a dot, and the body as it is sent."""
    message = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
