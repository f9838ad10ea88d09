"""The ports to an instance (does it answer, what hardware has it?) and to the samples of its GPU utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from gpuwatch.errors import GpuwatchError

if TYPE_CHECKING:
    from gpuwatch.domain.launches.instances.instance_checks import MeasuredInstance
    from gpuwatch.domain.launches.instances.utilisation import UtilisationSample


class InstanceUnreachable(GpuwatchError):
    """It does not answer correctly; it may do so later. The text may be shown to users."""


class LoginRefused(GpuwatchError):
    """It answers, but rejects the login; this does not prove a fault of the machine."""


class InstanceProbe(Protocol):
    """Checks an instance from outside and inside. A call may take its whole timeout: never call it within a task."""

    def banner(self, host: str, port: int) -> str:
        """The banner of the SSH server, cleaned. Raises InstanceUnreachable."""

    def measure(
        self, host: str, port: int, key_file: str, *, download: bool, user: str | None = None
    ) -> MeasuredInstance:
        """Log in and measure; unknown values are None.

        Args:
            key_file: the private key.
            download: also measure the download speed.
            user: None: root.

        Raises:
            InstanceUnreachable, LoginRefused.
        """


class UtilisationRepository(Protocol):
    """Samples of GPU utilisation. All methods raise StoreError."""

    def add(self, launch_id: str, sample: UtilisationSample) -> None:
        """Store one; it replaces a sample of the same millisecond."""

    def samples_since(self, launch_id: str, since: datetime) -> Sequence[UtilisationSample]:
        """Samples since the given time, oldest first."""

    def mean(self, launch_id: str) -> float | None:
        """Summary of all samples of a launch; None: there are none."""

    def delete_before(self, before: datetime) -> int:
        """Delete older samples; returns how many."""
