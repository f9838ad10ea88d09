"""Decides when a daemon that has just started first queries a provider for offers.

Nothing can be rented at a provider until its instances are listed and its prerequisites are known, so earlier quotes
could not win. The wait is longer for a provider that has answered something than for a silent one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

FIRST_LIST_S = 5.0  # after a start; later, the alert names a provider that has not listed its instances
READY_S = 15.0  # after a start, for a provider that answers slowly; assumed


class FirstRequestGate(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the first search may be sent to a provider.

    Args:
        started_s: monotonic, when the daemon started.
        is_listed: whether its instances are known.
        is_checked: whether its prerequisites are known.
        is_alive: whether it has answered, and its instance list did not fail.
        rents: whether anything can be rented; alerts alone wait at most `FIRST_LIST_S` for prerequisites.
    """

    started_s: float
    is_listed: Callable[[], bool]
    is_checked: Callable[[], bool]
    is_alive: Callable[[], bool]
    rents: Callable[[], bool]

    def is_ready(self) -> bool:
        """Whether renting there is possible."""
        return self.is_listed() and self.is_checked()

    def is_due(self, now_s: float) -> bool:
        """Whether it is ready, or the wait is over. `now_s` is monotonic."""
        waited_s = now_s - self.started_s
        if self.is_ready() or waited_s >= READY_S:
            return True
        return waited_s >= FIRST_LIST_S and not (self.is_alive() and self.rents())
