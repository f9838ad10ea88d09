"""Rate limits per endpoint, and a daily row quota; both off by default."""

from __future__ import annotations

from gpuwatch.emulator.answers import EmulatorReply, quota_exceeded, too_many_requests

# source: the official documentation's generated specification, 2026-08; seconds between calls of one identity.
THRESHOLD_S = {
    "search_get": 0.8, "search_post": 2.0, "create": 4.5, "bulk_create": 4.5, "instances": 1.0, "instances_v0": 20.0,
    "instance": 2.0, "change": 1.0, "bulk_change": 4.0, "destroy": 3.0, "bulk_destroy": 3.0, "bid": 5.5, "reboot": 1.0,
    "recycle": 1.0, "spend_rate": 2.0, "charges": 1.0, "price_increases": 2.0, "accept_increase": 2.0,
    "reject_increase": 2.0, "ssh": 1.0,
}  # fmt: skip
SEARCHES = frozenset({"search_get", "search_post", "search_asks"})


class Limits:
    """Counts calls and rows per identity.

    Args:
        intervals: whether the minimum intervals are enforced.
        shape: shape of the 429.
        rows_per_day: rows that searches may return until midnight UTC; None: no quota.
        search_every_s: seconds between two searches, for a marketplace stricter than its specification.
    """

    def __init__(
        self, intervals: bool, shape: str, rows_per_day: int | None, search_every_s: float | None = None
    ) -> None:
        self.intervals = intervals
        self.shape = shape
        self.rows_per_day = rows_per_day
        self._threshold_s = (
            THRESHOLD_S if search_every_s is None else THRESHOLD_S | dict.fromkeys(SEARCHES, search_every_s)
        )
        self._last: dict[tuple[str, str], float] = {}
        self._rows: dict[tuple[str, int], int] = {}

    def interval_refusal(self, endpoint: str, identity: str, now: float) -> EmulatorReply | None:
        """Return the 429 of a call that follows the last one too closely; None: allowed, and recorded."""
        threshold = self._threshold_s.get(endpoint)
        if not self.intervals or threshold is None:
            return None
        last = self._last.get((endpoint, identity))
        if last is not None and 0 <= now - last < threshold:
            return too_many_requests(self.shape, threshold, now)
        self._last[endpoint, identity] = now
        return None

    def quota_refusal(self, identity: str, now: float) -> EmulatorReply | None:
        """Return the 429 of a used-up row quota, or None."""
        if self.rows_per_day is None or self.rows_today(identity, now) < self.rows_per_day:
            return None
        return quota_exceeded(self.rows_per_day, now)

    def count_rows(self, identity: str, rows: int, now: float) -> None:
        """Add the rows of an answer to the day's sum."""
        if self.rows_per_day is not None:
            day = (identity, int(now // 86_400))
            self._rows[day] = self._rows.get(day, 0) + rows

    def rows_today(self, identity: str, now: float) -> int:
        """Return the number of rows that this identity received since midnight UTC."""
        return self._rows.get((identity, int(now // 86_400)), 0)
