"""When a daemon that has just started asks a provider for offers first.

Until the provider has listed its instances and its prerequisites are known, nothing may be rented there, so that its
quotes could not win. One that has answered anything is alive, and waited for longer than one that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

FIRST_LIST_S = 5.0  # after a start; then a provider that does not list its instances is named in the alert
READY_S = 15.0  # after a start, for a provider that is alive and slow; assumed


class FirstRequestGate(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the first question to a provider may be sent.

    Args:
        started_s: monotonic, when the daemon started.
        is_listed: whether its instances are known.
        is_checked: whether its prerequisites are known.
        is_alive: whether it has answered, and its list of instances did not fail.
        rents: whether anything may be rented; alerts alone need no prerequisites for longer than `FIRST_LIST_S`.
    """

    started_s: float
    is_listed: Callable[[], bool]
    is_checked: Callable[[], bool]
    is_alive: Callable[[], bool]
    rents: Callable[[], bool]

    def is_ready(self) -> bool:
        """Whether something may be rented there."""
        return self.is_listed() and self.is_checked()

    def is_due(self, now_s: float) -> bool:
        """Whether it is ready, or waited for no longer. `now_s` is monotonic."""
        waited_s = now_s - self.started_s
        if self.is_ready() or waited_s >= READY_S:
            return True
        return waited_s >= FIRST_LIST_S and not (self.is_alive() and self.rents())
