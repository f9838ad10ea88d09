"""The port to an engine that runs one command on several machines: it rents, gpuwatch asks, follows and cancels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from gpuwatch.ports.renting import Launcher


class ClusterRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run as the engine shows it. None: it does not say."""

    name: str
    status: str  # as the engine words it
    is_over: bool
    is_placed: bool  # a machine was rented for it, or may have been
    usd_hour: float | None  # of all machines; of those it has not rented yet, their price cap
    cost_usd: float | None  # so far, by the engine's own account
    exit_code: int | None  # of the first machine whose command failed, else 0
    why: str = ""  # how it ended


class ClusterLauncher(Launcher, Protocol):
    """An engine as a launcher whose instances are whole clusters; an instance's id is the run's name."""

    def submit(self, name: str, task: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Submit a run, once. The engine itself refuses a second one of a name that is not over.

        Args:
            secrets: variables that the task names without a value.

        Raises:
            ProviderUnreachable: the program could not be started: nothing was sent.
            OutcomeUnknown: anything else; ask for the name before doing anything again.
        """

    def run(self, name: str) -> ClusterRun | None:
        """A run, over or not; None: the engine says that there is none. Raises ProviderError: it does not say."""
