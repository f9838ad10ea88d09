"""The port to what orders were refused for."""

from __future__ import annotations

from typing import Protocol

from gpuwatch.domain.launches.scopes import SkippedScope


class ScopeLog(Protocol):
    """Where it is kept, for every later reservation."""

    def skip(self, scope: SkippedScope) -> None:
        """Skip it from now on. Raises StoreError."""


class NoScopeLog:
    """Keeps nothing: for simulations."""

    def skip(self, scope: SkippedScope) -> None:
        """Nothing."""


NO_SCOPE_LOG = NoScopeLog()
