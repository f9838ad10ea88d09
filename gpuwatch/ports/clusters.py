"""The port to a cluster engine, which rents machines for one command; gpuwatch submits, follows and cancels runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from gpuwatch.ports.renting import Launcher


class ClusterRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run as the engine reports it. None: not reported."""

    name: str
    status: str  # in the engine's words
    is_over: bool
    is_placed: bool  # a machine was rented for it, or may have been
    usd_hour: float | None  # of all machines; for machines not rented yet, their price cap
    cost_usd: float | None  # so far, as the engine reports it
    exit_code: int | None  # of the first machine whose command failed, else 0
    why: str = ""  # how it ended


class ClusterLauncher(Launcher, Protocol):
    """A cluster engine as a launcher whose instances are whole clusters; the instance id is the run's name."""

    def submit(self, name: str, task: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Submit a run once. The engine rejects a second run of the same name while the first is active.

        Args:
            secrets: values of variables that the task lists without a value.

        Raises:
            ProviderUnreachable: the program could not be started; nothing was sent.
            OutcomeUnknown: anything else; look up the name before doing anything again.
        """

    def run(self, name: str) -> ClusterRun | None:
        """A run, active or ended; None: the engine knows none. Raises ProviderError: no answer."""
