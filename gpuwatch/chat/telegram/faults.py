"""Faults of one bot: each is logged once, and retried with increasing pauses."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gpuwatch.errors import StoreError

log = logging.getLogger(__name__)

MAX_WAIT_S = 60.0
REFUSED_S = 300.0  # rejected token: the check of the alert channel reports it, too


class ChatFaults:
    """Counts the failures of one bot.

    Args:
        recovery_text: the log line for the recovery.
    """

    def __init__(self, recovery_text: str) -> None:
        self._recovery_text = recovery_text
        self._failures = 0
        self._fault = ""

    def report(self, fault: str) -> None:
        """Log it unless it was logged last; parts of the text that change between attempts are in parentheses."""
        kind = fault.partition("(")[0]
        if kind != self._fault:
            log.warning("%s", fault)
        self._fault = kind

    def failed(self, fault: str) -> float:
        """Log a failure; return the seconds to wait before the next attempt."""
        self.report(fault)
        self._failures += 1
        return min(2.0 ** min(self._failures - 1, 6), MAX_WAIT_S)

    def wait_after(self, step: Callable[[], float]) -> float:
        """Run a step of the bot's thread and contain its errors; return the seconds to wait before the next step."""
        try:
            return step()
        except StoreError as error:
            return self.failed(f"the chat is waiting for the database: {error}")
        except Exception:
            log.exception("the chat's thread failed; retrying")
            return MAX_WAIT_S

    def recovered(self) -> None:
        """Note that it works again."""
        if self._fault:
            log.info("%s", self._recovery_text)
        self._failures, self._fault = 0, ""
