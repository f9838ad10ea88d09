"""The signature of everything that gpuwatch posts to its owner: hooks and alerts."""

from __future__ import annotations

import hashlib
import hmac

TIMESTAMP_HEADER = "X-Gpuwatch-Timestamp"
SIGNATURE_HEADER = "X-Gpuwatch-Signature-256"


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """`sha256=` and the hex HMAC-SHA256 of the timestamp, a dot, and the body as sent."""
    message = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
