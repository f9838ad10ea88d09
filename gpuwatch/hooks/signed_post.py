"""Sends a signed message to an address of the owner, so that the receiver can verify sender, content and time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuwatch.ports.http import NetError
from gpuwatch.ports.signing import SIGNATURE_HEADER, TIMESTAMP_HEADER, signature
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.ports.hooks import HookCall
    from gpuwatch.ports.http import HttpClient

_MAX_RESPONSE_BYTES = 65_536


def post_signed(http: HttpClient, call: HookCall) -> str | None:
    """POST a hook once; redirects are not followed. None: accepted (2xx), else one line with the reason.

    Args:
        call: one with a `url`.
    """
    body, timestamp = call.body.encode(), str(int(call.at.timestamp()))
    headers = {
        "Content-Type": "application/json",
        "X-Gpuwatch-Event": call.event,
        TIMESTAMP_HEADER: timestamp,
    }
    if call.spec.secret is not None:
        headers[SIGNATURE_HEADER] = signature(call.spec.secret.reveal(), timestamp, body)
    try:
        return _post(http, call.spec.url.reveal() if call.spec.url else "", headers, body, call.timeout_s)
    except NetError as error:
        return redact(str(error))


def _post(http: HttpClient, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> str | None:
    with http.stream("POST", url, headers=headers, content=body, deadline_s=timeout_s) as response:
        if 200 <= response.status < 300:
            return None  # the body of a 2xx answer is ignored
        lines = response.read(_MAX_RESPONSE_BYTES).decode("utf-8", "replace").strip().splitlines()
    redirect_note = "; redirects are not followed" if 300 <= response.status < 400 else ""
    last_line = f": {lines[-1].strip()}" if lines else ""
    return redact(f"the receiver answered {response.status}{redirect_note}{last_line}")
