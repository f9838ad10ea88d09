"""One request as the endpoints see it, and its log entry for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from gpuwatch.emulator.answers import RefusedRequest, bare_refusal, refuse

SECRET_FIELDS = frozenset({"api_key", "image_login", "ssh_key", "key", "onstart"})


class Fault(NamedTuple):
    """The fault of one request: its kind and its settings."""

    kind: str
    settings: dict[str, Any]

    def get(self, name: str, default: Any) -> Any:
        """Return a setting."""
        return self.settings.get(name, default)


@dataclass(slots=True)
class EmulatorRequest:
    """The received request; `key` is the secret as sent, `keyed` is true if it is correct."""

    method: str
    path: str
    params: dict[str, str]
    raw: bytes
    key: str | None = None
    address: str = ""
    gzip: bool = False
    arrived_ns: int = 0  # CLOCK_MONOTONIC, comparable between the processes of a machine
    endpoint: str = "unknown"
    ids: tuple[str, ...] = ()
    now: float = 0.0
    keyed: bool = False
    fault: Fault | None = None
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case

    def body(self) -> dict[str, Any]:
        """Decode the body as an object; an empty body is an empty object."""
        value = self.decode_body()
        if not isinstance(value, dict):
            raise refuse(400, "invalid_args", "Invalid args: body must be an object")
        return value

    def decode_body(self) -> Any:
        """Decode the body, whatever its type."""
        return decode(self.raw) if self.raw else {}

    def param(self, name: str, default: Any = None) -> Any:
        """Return a query parameter decoded from JSON; text that is not JSON stays text."""
        text = self.params.get(name)
        if text is None:
            return default
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text

    def path_id(self) -> int:
        """Return the id in the path.

        Raises:
            RefusedRequest: it is not a number.
        """
        if not self.ids or not self.ids[0].isdigit():
            raise refuse(400, "invalid_args", "invalid instance_id")
        return int(self.ids[0])

    def has_fault(self, *kinds: str) -> bool:
        """Whether the request has one of these faults."""
        return self.fault is not None and self.fault.kind in kinds


class LoggedRequest(NamedTuple):
    """One entry of the request log, without secrets."""

    time: float
    method: str
    path: str
    sent: Any  # the query parameters and the body, as one object
    arrived_ns: int = 0


def decode(raw: bytes | str) -> Any:
    """Decode JSON, or refuse like the search."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise bare_refusal(400, "invalid_request", "Invalid json body") from None


def logged_request(request: EmulatorRequest) -> LoggedRequest:
    """Log a request without its secrets."""
    sent: dict[str, Any] = {name: request.param(name) for name in request.params}
    try:
        body = request.decode_body()
    except RefusedRequest:
        body = {"_": request.raw[:200].decode(errors="replace")}
    sent |= body if isinstance(body, dict) else {"_": body}
    return LoggedRequest(request.now, request.method, request.path, without_secrets(sent), request.arrived_ns)


def without_secrets(sent: dict[str, Any]) -> dict[str, Any]:
    """Replace the values of keys that contain secrets; keeps the names of the environment."""
    env = sent.get("env")
    names = dict.fromkeys(env, "***") if isinstance(env, dict) else "***"
    hidden = {name: "***" for name in SECRET_FIELDS if sent.get(name)} | ({"env": names} if env else {})
    return {name: hidden.get(name, value) for name, value in sent.items()}
