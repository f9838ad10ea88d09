"""The ports to an instance itself (does it answer, what is it?) and to the samples of its GPU utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from gpuwatch.errors import GpuwatchError

if TYPE_CHECKING:
    from gpuwatch.domain.launches.instance_verification import MeasuredInstance
    from gpuwatch.domain.launches.utilisation import UtilisationSample


class InstanceUnreachable(GpuwatchError):
    """It does not answer, or not as it should; it may do so later. Its text is fit to be shown."""


class LoginRefused(GpuwatchError):
    """It answers, and does not let us in: no fault of the machine as far as anybody knows."""


class InstanceProbe(Protocol):
    """Checks an instance from outside and inside. Each call may take its whole time limit: never within a task."""

    def banner(self, host: str, port: int) -> str:
        """What an SSH server says first, cleaned. Raises InstanceUnreachable."""

    def inside(
        self, host: str, port: int, key_file: str, *, download: bool, user: str | None = None
    ) -> MeasuredInstance:
        """Log in and measure; what is unknown there is None.

        Args:
            key_file: the private key.
            download: measure the download speed, too.
            user: None: root.

        Raises:
            InstanceUnreachable, LoginRefused.
        """


class UtilisationRepository(Protocol):
    """Samples of GPU use. All methods raise StoreError."""

    def add(self, launch_id: str, sample: UtilisationSample) -> None:
        """Keep one; a second one of the same millisecond takes its place."""

    def since(self, launch_id: str, moment: datetime) -> Sequence[UtilisationSample]:
        """Those from a moment on, oldest first."""

    def mean(self, launch_id: str) -> float | None:
        """Of all known samples of a launch; None: there is none."""

    def forget(self, before: datetime) -> int:
        """Drop older ones; how many."""
