"""What goes wrong with one bot: each fault is logged once, and tried again after longer and longer pauses."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gpuwatch.errors import StoreError

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 60.0
REFUSED_S = 300.0  # the token: the alerts' own check says so, too


class ChatFaults:
    """Counts the failures of one bot.

    Args:
        well: the line for when it works again.
    """

    def __init__(self, well: str) -> None:
        self._well = well
        self._failures = 0
        self._fault = ""

    def report(self, fault: str) -> None:
        """Log it, unless it was the last that was logged; its text may hold what changes from try to try, in (…)."""
        kind = fault.partition("(")[0]
        if kind != self._fault:
            log.warning("%s", fault)
        self._fault = kind

    def failed(self, fault: str) -> float:
        """Report it; how many seconds to wait before the next try."""
        self.report(fault)
        self._failures += 1
        return min(2.0 ** min(self._failures - 1, 6), LONGEST_WAIT_S)

    def wait_after(self, step: Callable[[], float]) -> float:
        """Do a step of the bot's thread, whatever happens in it; how many seconds to wait before the next."""
        try:
            return step()
        except StoreError as error:
            return self.failed(f"the chat is waiting for the database: {error}")
        except Exception:
            log.exception("the chat's thread failed; retrying")
            return LONGEST_WAIT_S

    def recovered(self) -> None:
        """It works."""
        if self._fault:
            log.info("%s", self._well)
        self._failures, self._fault = 0, ""
