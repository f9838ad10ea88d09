"""How long `before_stop` may take, and when it must start so that no instance outlives its end because of it. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuwatch.domain.launches.instances.end_rules import EndCause
from gpuwatch.domain.launches.launch import EndReason, Launch, LaunchState
from gpuwatch.domain.watches.watch import LaunchSpec, Watch

HOOK_MARGIN_S = 10.0  # added to a hook's own time, to kill and record it
AFTER_END_S = (
    60.0  # an instance may wait for its hook this long past its end; the destroy takes part of the second minute
)


def longest_hook_s(spec: LaunchSpec | None) -> float:
    """The longest time that a destroy may have to wait for `before_stop`; 0 without that hook."""
    return 0.0 if spec is None or spec.before_stop is None else spec.hook_timeout_s + HOOK_MARGIN_S


def hook_must_begin(launch: Launch, watch: Watch, now: datetime) -> EndCause | None:
    """Return an end cause once `before_stop` must start, so that it is over at most one minute past the end."""
    if launch.state is not LaunchState.RUNNING or launch.running_at is None or launch.max_runtime_s is None:
        return None
    early_s = longest_hook_s(watch.launch) - AFTER_END_S
    ends_at = launch.running_at + timedelta(seconds=launch.max_runtime_s)
    if launch.deadline is not None:
        ends_at = min(ends_at, launch.deadline)
    if early_s <= 0 or now < ends_at - timedelta(seconds=early_s):
        return None
    return EndReason.MAX_RUNTIME, f"before_stop starts {early_s:.0f} s early, to finish in time"
