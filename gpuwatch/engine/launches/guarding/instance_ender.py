"""Sends destroys, stops and starts, repeatedly if needed, and reports refused and slow ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from gpuwatch.domain.alerts.alert import AlertSpec
from gpuwatch.domain.alerts.kept_texts import HALT_REFUSED, START_REFUSED, START_WAITS
from gpuwatch.domain.alerts.launch_texts import END_REFUSED, END_UNCONFIRMED, TIME_OVER, TO_BE_ENDED
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.engine.alerts.alert_reporter import AlertReporter
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.followed_launch import FollowedLaunches
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.errors import OrderError, ProviderError, is_refusal
from gpuwatch.ports import DiskKeeper, Launcher
from gpuwatch.redaction import redact

log = logging.getLogger(__name__)

SLOW_STOP_S = 300.0
RESEND_S = 30.0  # after an acknowledgement, while nothing can confirm the end


def at_once(launch: Launch, now: datetime) -> bool:
    """Allow the destroy without waiting for a hook."""
    return True


class InstanceEnder:
    """Ends instances at one provider. An acknowledgement is no proof; only the lists are.

    Args:
        monotonic: seconds.
        may_destroy: called before a destroy; False: not yet (the owner's hook is still running).
    """

    def __init__(
        self,
        reporter: AlertReporter,
        launcher: Launcher,
        launch_alerts: LaunchAlerts,
        followed: FollowedLaunches,
        monotonic: Callable[[], float],
        may_destroy: Callable[[Launch, datetime], bool] = at_once,
    ) -> None:
        self._reporter = reporter
        self._launcher = launcher
        self._launch_alerts = launch_alerts
        self._monotonic = monotonic
        self._may_destroy = may_destroy
        self._followed = followed

    def is_acknowledged(self, launch: Launch) -> bool:
        """Whether the provider has accepted a destroy of it in this process."""
        return self._followed.of(launch).acknowledged_s is not None

    def was_just_acknowledged(self, launch: Launch) -> bool:
        """Whether that was so recent that another destroy is pointless."""
        at_s = self._followed.of(launch).acknowledged_s
        return at_s is not None and self._monotonic() - at_s < RESEND_S

    def destroy(self, launch: Launch, instance_id: str, now: datetime) -> None:
        """Send a destroy; called again at every listing that still shows the instance."""
        self._report_if_slow(launch, now)
        if not self._may_destroy(launch, now):
            return
        failpoint("launch.before_destroy")
        try:
            self._launcher.destroy(instance_id)
            self._followed.of(launch).acknowledged_s = self._monotonic()
            failpoint("launch.after_destroy")
        except (OrderError, ProviderError) as error:
            log.warning("launch %s: cannot destroy its instance yet: %s", launch.launch_id, error)
            if is_refusal(error):
                # repeating it does not help
                reason, words = launch.end_reason or TIME_OVER, redact(str(error))
                self._reporter.report(self._launch_alerts.of(END_REFUSED, launch, now, error=words, reason=reason))

    def halt(self, launch: Launch, instance_id: str, now: datetime) -> None:
        """Stop it with its disk kept; called again at every listing until one shows that it stopped."""
        if not self._may_destroy(launch, now) or not isinstance(self._launcher, DiskKeeper):
            return
        failpoint("launch.before_halt")
        self._followed.of(launch).is_halt_sent = True
        try:
            self._launcher.stop_instance(instance_id)
            failpoint("launch.after_halt")
        except (OrderError, ProviderError) as error:
            log.warning("launch %s: cannot stop its instance yet: %s", launch.launch_id, error)
            if is_refusal(error):
                self._report(HALT_REFUSED, launch, now, error)

    def resume(self, launch: Launch, instance_id: str, now: datetime) -> None:
        """Start it again; called again at every listing until one shows it running, or its time for that is over."""
        if not isinstance(self._launcher, DiskKeeper):
            return
        failpoint("launch.before_resume")
        try:
            begins = self._launcher.start_instance(instance_id)
            failpoint("launch.after_resume")
            if not begins:
                self._report(START_WAITS, launch, now)
        except (OrderError, ProviderError) as error:
            log.warning("launch %s: cannot start its instance yet: %s", launch.launch_id, error)
            if is_refusal(error):
                self._report(START_REFUSED, launch, now, error)

    def _report(self, spec: AlertSpec, launch: Launch, now: datetime, error: Exception | None = None) -> None:
        words = "" if error is None else redact(str(error))
        self._reporter.report(self._launch_alerts.of(spec, launch, now, error=words))

    def _report_if_slow(self, launch: Launch, now: datetime) -> None:
        one, tick_s = self._followed.of(launch), self._monotonic()
        one.stopping_since_s = tick_s if one.stopping_since_s is None else one.stopping_since_s
        if tick_s - one.stopping_since_s > SLOW_STOP_S:
            reason = launch.end_reason or TO_BE_ENDED
            self._reporter.report(self._launch_alerts.of(END_UNCONFIRMED, launch, now, reason=reason))
