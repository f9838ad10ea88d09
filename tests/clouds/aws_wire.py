"""The formats of EC2 and related services: XML of the query API, JSON of newer services, refusals, lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.sax.saxutils import escape

import msgspec

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest
from gpuwatch.emulator.request import EmulatorRequest

_NAMESPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15/"


def listed(sent: Mapping[str, str], name: str) -> list[str]:
    """Return a list's values as sent: `InstanceType.1`, `InstanceType.2`, …"""
    return [value for key, value in sent.items() if re.fullmatch(re.escape(name) + r"\.\d+", key)]


def json_reply(value: Mapping[str, Any], status: int = 200) -> EmulatorReply:
    """Return the answer of a JSON service."""
    return EmulatorReply(status, msgspec.json.encode(value), content_type="application/x-amz-json-1.1")


def xml_reply(request: EmulatorRequest, value: Mapping[str, Any]) -> EmulatorReply:
    """Return the answer to an EC2 action."""
    action = request.path[1:]
    body = f'<{action}Response xmlns="{_NAMESPACE}"><requestId>0</requestId>{_inner(value)}</{action}Response>'
    return EmulatorReply(
        200, f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'.encode(), content_type="text/xml;charset=UTF-8"
    )


def _inner(value: Any) -> str:
    """Write a value like EC2: lists are `item`s."""
    if isinstance(value, Mapping):
        return "".join(f"<{name}>{_inner(one)}</{name}>" for name, one in value.items())
    if isinstance(value, list):
        return "".join(f"<item>{_inner(one)}</item>" for one in value)
    return escape(str(value).lower() if isinstance(value, bool) else str(value))


def refuse(code: str, message: str, status: int = 400) -> RefusedRequest:
    """Return EC2's own envelope of a refusal."""
    error = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>{error}</Error></Errors>'
    return RefusedRequest(
        EmulatorReply(status, f"{body}<RequestID>0</RequestID></Response>".encode(), content_type="text/xml")
    )
