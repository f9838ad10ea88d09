"""Whether the database's rows were compared with the provider's instances since the database last went back."""

from __future__ import annotations

import math
from collections.abc import Callable

_SETTLE_S = 60.0  # an order that was under way when commits were lost is answered, and listed, by then


class ReconciledStore:
    """The generation of the database (`storage.setup.lineage`) whose launches were looked up at a provider.

    After commits were lost, a listing counts only if it began `settle_s` after the loss was noticed: another host may
    have been ordering at that moment, and its row is gone.

    Args:
        generation: returns the database's generation.
        monotonic: seconds.
    """

    def __init__(
        self, generation: Callable[[], int], monotonic: Callable[[], float], settle_s: float = _SETTLE_S
    ) -> None:
        self._generation = generation
        self._monotonic = monotonic
        self._settle_s = settle_s
        self._seen = generation()
        # a service that begins after a loss does not know how long ago that was
        self._since_s = monotonic() if self._seen else -math.inf
        self._listed: int | None = None

    @property
    def is_current(self) -> bool:
        """Whether nothing was lost since the last listing that counts."""
        return self._listed is not None and self._listed == self._generation()

    @property
    def went_back(self) -> bool:
        """Whether commits were lost since the start, and no listing counts yet."""
        return not self.is_current and self._generation() != 0

    def began(self) -> int | None:
        """Call before reading the rows and the list; returns what to pass to `listed`."""
        now_s, generation = self._monotonic(), self._generation()
        if generation != self._seen:
            self._seen, self._since_s = generation, now_s
        return generation if now_s - self._since_s >= self._settle_s else None

    def listed(self, began: int | None) -> None:
        """Note that the rows were compared with a complete list."""
        if began is not None:
            self._listed = began
