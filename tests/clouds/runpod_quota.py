"""The request quota of the emulated RunPod: three windows, in the headers of every answer to a key."""

from __future__ import annotations

from typing import Final, NamedTuple

WINDOWS: Final = {"minute": 60, "hour": 3_600, "day": 86_400}


class Quotas(NamedTuple):
    """Requests per window; the vendor's documented example."""

    minute: int = 60
    hour: int = 3_000
    day: int = 50_000


class QuotaMeter:
    """Counts requests in fixed windows."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self._used: dict[tuple[str, int], int] = {}

    def count(self, now: float) -> str | None:
        """Take one; return the name of an exhausted window, or None."""
        spent = next((name for name in WINDOWS if self._left(name, now) <= 0), None)
        if spent is None:
            for name, seconds in WINDOWS.items():
                key = (name, int(now) // seconds)
                self._used[key] = self._used.get(key, 0) + 1
        return spent

    def headers(self, now: float, spent: str | None = None) -> dict[str, str]:
        """Return the headers; `spent` names the window of a 429."""
        lines = [f'"{name}";r={max(self._left(name, now), 0)};t={_until(name, now)}' for name in WINDOWS]
        policies = [f'"{name}";q={getattr(self.quotas, name)};w={seconds}' for name, seconds in WINDOWS.items()]
        headers = {"RateLimit": ", ".join(lines), "RateLimit-Policy": ", ".join(policies)}
        return headers | ({} if spent is None else {"Retry-After": str(_until(spent, now))})

    def _left(self, name: str, now: float) -> int:
        quota: int = getattr(self.quotas, name)
        return quota - self._used.get((name, int(now) // WINDOWS[name]), 0)


def _until(name: str, now: float) -> int:
    return WINDOWS[name] - int(now) % WINDOWS[name]
