"""Delays the responses to wrong passwords; too many result in 429."""

from __future__ import annotations

from collections.abc import Callable

WINDOW_S = 300.0
PER_CLIENT = 5  # wrong passwords in the window
IN_ALL = 100
_STEP_S, _MAX_DELAY_S = 0.1, 1.0


class LoginLimit:
    """Counts wrong passwords by client address and in total.

    Args:
        monotonic: monotonic seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failures: list[tuple[float, str]] = []

    def attempt(self, client: str) -> float | None:
        """Count an attempt as wrong until `succeeded`, so that parallel attempts count, too.

        Returns:
            How many seconds this client must wait, even with the right password; None: it may try.
        """
        now_s = self._monotonic()
        self._failures = [failure for failure in self._failures if now_s - failure[0] < WINDOW_S]
        failed_at = [at_s for at_s, address in self._failures if address == client]
        if len(failed_at) >= PER_CLIENT:
            return failed_at[-PER_CLIENT] + WINDOW_S - now_s
        if len(self._failures) >= IN_ALL:
            return self._failures[-IN_ALL][0] + WINDOW_S - now_s
        self._failures.append((now_s, client))
        return None

    def delay_s(self, client: str) -> float:
        """Return the delay of the response to a wrong password: doubled each time."""
        return min(_MAX_DELAY_S, _STEP_S * 2.0 ** (sum(address == client for _, address in self._failures) - 1))

    def succeeded(self, client: str) -> None:
        """Forget the client's wrong attempts."""
        self._failures = [failure for failure in self._failures if failure[1] != client]
