"""The indexes by which many watches are matched on many offers; a limited number of them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.domain.watches.watch_index import WatchIndex

_MOST = 64  # queries of all providers that are matched by an index (assumed): jobs come and go in ever new groups

_Key = tuple[str, bool, tuple[str, ...]]  # provider, rental type, names of the watches


class WatchIndexes:
    """One index for each group of watches that a query is for. Thread-safe."""

    def __init__(self, commissions: Mapping[str, Commission]) -> None:
        self._commissions = commissions
        self._lock = threading.Lock()
        self._known: dict[_Key, tuple[tuple[Watch, ...], WatchIndex]] = {}  # the one used last comes last

    def __len__(self) -> int:
        return len(self._known)

    def of(self, watches: Sequence[Watch], provider: str, spot: bool) -> WatchIndex:
        """Return an index that matches by the changes since the last poll."""
        key = (provider, spot, tuple(watch.name for watch in watches))
        with self._lock:
            known, index = self._known.pop(key, ((), None))
            if index is None or known != tuple(watches):  # a limit from the history has changed
                index = WatchIndex(watches, self._commissions)
            self._known[key] = tuple(watches), index
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return index

    def forget_except(self, names: Collection[str]) -> None:
        """Forget the groups with other watches."""
        with self._lock:
            self._known = {key: value for key, value in self._known.items() if all(name in names for name in key[2])}
