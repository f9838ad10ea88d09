"""The port for scopes that orders were refused for."""

from __future__ import annotations

from typing import Protocol

from gpuwatch.domain.launches.life.refused_scopes import SkippedScope


class ScopeLog(Protocol):
    """Stores refused scopes for later reservations."""

    def skip(self, scope: SkippedScope) -> None:
        """Skip the scope from now on. Raises StoreError."""


class NoScopeLog:
    """Stores nothing: for simulations."""

    def skip(self, scope: SkippedScope) -> None:
        """Does nothing."""


NO_SCOPE_LOG = NoScopeLog()
