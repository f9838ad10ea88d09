"""RunPod's request quota, from the headers `RateLimit` and `Retry-After` of its answers.

source: REST v2 specification 2.0.0: `RateLimit: "minute";r=12;t=30, "hour";r=2800;t=1812`, where r is the remaining
number and t the seconds until the window resets.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gpuwatch.providers.toolkit.validation import number

RESERVED: Final = 5  # of each window, for orders and lists: searches never take the last ones
_MEMBER: Final = re.compile(r'"([a-z]{1,16})"((?:;[a-z]{1,4}=[0-9]{1,9}){1,6})')
_HEADER_MAX: Final = 1_000
_WAIT_MAX_S: Final = 86_400.0


class _Window(msgspec.Struct):
    remaining: float
    resets_at_s: float  # monotonic


def parse_windows(header: str | None) -> dict[str, tuple[int, int]]:
    """Parse name → (remaining, seconds until the reset); skips unreadable members."""
    found = {}
    for name, parameters in _MEMBER.findall((header or "")[:_HEADER_MAX]):
        values = dict(part.split("=") for part in parameters.strip(";").split(";"))
        if "r" in values and "t" in values:
            found[name] = int(values["r"]), int(values["t"])
    return found


class Quota:
    """The remaining requests of each window. Before the first answer there is no limit."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: dict[str, _Window] = {}

    def on_reply(self, status: int, headers: Mapping[str, str]) -> None:
        """Record the quota in an answer. A 429 without an empty window closes all of them for `Retry-After`."""
        windows = parse_windows(headers.get("ratelimit"))
        with self._lock:
            now = self._monotonic()
            for name, (remaining, seconds) in windows.items():
                self._windows[name] = _Window(remaining, now + min(seconds, _WAIT_MAX_S))
            if status == 429 and all(remaining > 0 for remaining, _ in windows.values()):
                wait_s = number(headers.get("retry-after"), 0.0, _WAIT_MAX_S) or 1.0
                self._windows["asked to wait"] = _Window(0, now + wait_s)

    def take(self, urgent: bool) -> float:
        """Take one request out of every window, or return the seconds to wait before the next try."""
        reserved = 0 if urgent else RESERVED
        with self._lock:
            now = self._monotonic()
            for name in [name for name, window in self._windows.items() if window.resets_at_s <= now]:
                del self._windows[name]  # reset; the next answer states the new number
            waits_s = [window.resets_at_s - now for window in self._windows.values() if window.remaining <= reserved]
            if not waits_s:
                for window in self._windows.values():
                    window.remaining -= 1
            return max(waits_s, default=0.0)
