"""Checks that a new instance matches its offer: the list at once, the instance itself from a thread.

A poll never waits for an instance: it takes an available result, or reports "not yet known".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from gpuwatch.domain.launches.instance import Instance
from gpuwatch.domain.launches.instances.end_rules import EndCause, late_start
from gpuwatch.domain.launches.instances.instance_checks import (
    MeasuredInstance,
    listing_mismatch,
    measurement_mismatch,
    slow_download,
)
from gpuwatch.domain.launches.launch import EndReason, Launch
from gpuwatch.domain.setup.durations import is_recent
from gpuwatch.domain.watches.launch_spec import LaunchSpec, VerificationMode
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.launches.followed_launch import FollowedLaunches, VerificationProgress
from gpuwatch.ports.remote import InstanceProbe, InstanceUnreachable, LoginRefused

log = logging.getLogger(__name__)

LOGIN_PATIENCE = timedelta(minutes=2)  # a new instance may answer before it has its keys
MEASURED = 2  # slow measurements before the connection counts as slow

BackgroundRunner = Callable[[Callable[[], None]], None]


def in_background(work: Callable[[], None]) -> None:
    """Run it in a daemon thread."""
    threading.Thread(target=work, name="verify", daemon=True).start()


class InstanceVerifier:
    """Verifies launches, each until the result is known.

    Args:
        start: runs a probe in the background.
        unmeasured: called once for an instance that could not be measured, with the reason; it is then trusted.
    """

    def __init__(
        self,
        probe: InstanceProbe,
        unmeasured: Callable[[Launch, str, datetime], None],
        followed: FollowedLaunches,
        start: BackgroundRunner = in_background,
    ) -> None:
        self._probe = probe
        self._unmeasured = unmeasured
        self._start = start
        self._followed = followed

    def verified(self, launch: Launch, instance: Instance, watch: Watch | None, now: datetime) -> bool | EndCause:
        """Return True if it matches its offer as far as known, False if not yet known, or the end cause."""
        spec = None if watch is None else watch.launch
        if watch is None or spec is None or spec.verify is VerificationMode.NONE:
            return True
        fault = listing_mismatch(launch, instance)
        if fault is not None or spec.verify is VerificationMode.LISTED:
            return fault or True
        progress = self._followed.of(launch).verification
        found = progress.done or self._check(progress, launch, instance, watch, spec, now)
        if found is False and late_start(launch, progress.words, now) is not None:
            return EndReason.NO_SSH, progress.words
        return found

    def _check(
        self,
        progress: VerificationProgress,
        launch: Launch,
        instance: Instance,
        watch: Watch,
        spec: LaunchSpec,
        now: datetime,
    ) -> bool | EndCause:
        if progress.probing:
            return False
        found, progress.found = progress.found, None
        result = False if found is None else self._judge(progress, found, launch, watch, now)
        if result is False:
            self._start_probe(progress, instance, spec, watch.min_download_mbps is not None)
        progress.done = result is True
        return result

    def _judge(
        self,
        progress: VerificationProgress,
        found: MeasuredInstance | InstanceUnreachable | LoginRefused,
        launch: Launch,
        watch: Watch,
        now: datetime,
    ) -> bool | EndCause:
        if isinstance(found, InstanceUnreachable):
            progress.words = str(found)
            return False
        if isinstance(found, LoginRefused):
            return self._refused(progress, found, launch, now)
        return measurement_mismatch(launch, found) or _speed(progress, found, watch.min_download_mbps)

    def _refused(self, progress: VerificationProgress, found: LoginRefused, launch: Launch, now: datetime) -> bool:
        """Handle a refused login, which need not be the machine's fault: later trust it, and alert the owner."""
        progress.words = str(found)
        progress.refused_at = progress.refused_at or now
        if is_recent(progress.refused_at, now, LOGIN_PATIENCE):
            return False
        self._unmeasured(launch, str(found), now)
        return True

    def _start_probe(
        self, progress: VerificationProgress, instance: Instance, spec: LaunchSpec, download: bool
    ) -> None:
        host, port = instance.ssh_host, instance.ssh_port
        if not host or port is None:
            return
        progress.probing = True
        inside: Callable[[], MeasuredInstance] = MeasuredInstance  # an empty result
        if spec.ssh_key is not None:
            user = instance.ssh_user
            inside = partial(self._probe.measure, host, port, spec.ssh_key, download=download, user=user)
        self._start(lambda: self._probe_instance(progress, host, port, inside))

    def _probe_instance(
        self, progress: VerificationProgress, host: str, port: int, inside: Callable[[], MeasuredInstance]
    ) -> None:
        try:
            if not progress.answers:
                self._probe.banner(host, port)
                progress.answers = True
            progress.found = inside()
        except (InstanceUnreachable, LoginRefused) as error:
            progress.found = error
        except Exception as error:
            log.exception("the probe of %s:%s failed", host, port)
            progress.found = InstanceUnreachable(f"the probe failed: {type(error).__name__}")
        finally:
            progress.probing = False


def _speed(progress: VerificationProgress, found: MeasuredInstance, wanted_mbps: float | None) -> bool | EndCause:
    """Judge the best measurement so far: the first may run during the image's own download."""
    progress.measured += 1
    if found.download_mbps is not None:
        progress.best_mbps = max(progress.best_mbps or 0.0, found.download_mbps)
    slow = slow_download(progress.best_mbps, wanted_mbps)
    if slow is None:
        return True
    progress.words = slow[1]
    return False if progress.measured < MEASURED else slow
