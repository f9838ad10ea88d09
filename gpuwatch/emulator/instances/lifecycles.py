"""The possible lifecycles of an instance, each a list of timed changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

# source: status messages of real dead hosts, 2026-08, addresses replaced
DEAD_PULL = (
    "error pulling image configuration: download failed after attempts=6: "
    "read tcp [2001:db8::1]:41550->[2001:db8::2]:443: read: connection reset by peer"
)
DEAD_OCI = (
    "Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create "
    "failed: could not apply required modification to OCI specification: error modifying OCI spec: failed to inject "
    "CDI devices: unresolvable CDI devices D.c0b49a0a/gpu=0: unknown\nError: failed to start containers: C.47474765"
)
QUEUED_MESSAGE = "Required resources are currently unavailable, state change queued."
PULL_MESSAGES = (
    "latest: Pulling from {image}",
    "0d30c18b26f8: Pulling fs layer",
    "0d30c18b26f8: Downloading",
    "5a7813e071bf: Verifying Checksum",
    "0d30c18b26f8: Extracting",
    "Status: Downloaded newer image for {image}",
)


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds from create to each stage; the defaults suit a demo, a real start takes minutes."""

    created_s: float = 0.3
    ssh_s: float = 0.6
    loading_s: float = 0.8
    running_s: float = 3.0
    measured_s: float = 1.0  # after running: measurements appear
    reboot_s: float = 1.0
    start_s: float = 1.0  # from stopped to running again

    def before_running(self) -> tuple[float, float, float]:
        """Return created, ssh and loading, shortened to the whole start if that is shorter."""
        total_s = self.running_s
        return min(self.created_s, 0.1 * total_s), min(self.ssh_s, 0.2 * total_s), min(self.loading_s, 0.3 * total_s)


class LifecycleStep(NamedTuple):
    """A change of an instance, and its time."""

    at: float
    changes: dict[str, Any]


def startup_steps(now: float, delays: Delays, image: str) -> list[LifecycleStep]:
    """null → created → loading with docker's progress → running."""
    created, ssh, loading = delays.before_running()
    steps = [
        LifecycleStep(now + created, {"actual_status": "created"}),
        LifecycleStep(now + ssh, {"has_ssh": True}),
        LifecycleStep(now + loading, {"actual_status": "loading"}),
    ]
    pull = pull_steps(now + loading, now + delays.running_s, image)
    return sort_by_time([*steps, *pull, *running_steps(now, delays, image)])


def sort_by_time(steps: list[LifecycleStep]) -> list[LifecycleStep]:
    """Sort by time only; steps at the same time keep their order."""
    return sorted(steps, key=lambda step: step.at)


def pull_steps(start: float, end: float, image: str) -> list[LifecycleStep]:
    """Return docker's messages during the image download, spread over its duration."""
    interval_s = max(0.0, end - start) / (len(PULL_MESSAGES) + 1)
    return [
        LifecycleStep(start + interval_s * n, {"status_msg": message.format(image=image)})
        for n, message in enumerate(PULL_MESSAGES)
    ]


def running_steps(now: float, delays: Delays, image: str) -> list[LifecycleStep]:
    """Return the last steps of every start: running, and a moment later measured."""
    message = f"success, running {image.replace(':', '_')}/ssh"
    running = {"actual_status": "running", "cur_state": "running", "status_msg": message, "measured": False}
    at = now + delays.running_s
    return [LifecycleStep(at, running), LifecycleStep(at + delays.measured_s, {"measured": True})]


def with_lifecycle_fault(steps: list[LifecycleStep], kind: str, after_s: float) -> list[LifecycleStep]:
    """Change a start so that it ends differently.

    Args:
        steps: the normal steps of the start.
        kind: see `LIFECYCLE_FAULTS`.
        after_s: for a fault of a running instance: seconds after it began to run.

    Raises:
        ValueError: unknown fault.
    """
    if kind not in LIFECYCLE_FAULTS:
        raise ValueError(f"no such lifecycle fault: {kind}; there are {', '.join(LIFECYCLE_FAULTS)}")
    loading = next(step.at for step in steps if step.changes.get("actual_status") == "loading")
    running = next(step.at for step in steps if step.changes.get("actual_status") == "running")
    if kind in STUCK_STATES:
        return [step for step in steps if step.at <= loading] + [LifecycleStep(running, STUCK_STATES[kind])]
    if kind == "slow_start":
        return [step if step.at < running else LifecycleStep(step.at + after_s, step.changes) for step in steps]
    return sort_by_time([*steps, LifecycleStep(running + after_s, AFTER_RUNNING[kind])])


STUCK_STATES: dict[str, dict[str, Any]] = {
    "dead_pull": {"cur_state": "stopped", "status_msg": DEAD_PULL},
    "dead_oci": {"actual_status": "created", "cur_state": "stopped", "status_msg": DEAD_OCI},
    "retrying": {"cur_state": "stopped", "status_msg": "0d30c18b26f8: Retrying in 5 seconds"},
    "stuck": {},
    "evicted": {"next_state": "stopped", "intended_status": "stopped", "cur_state": "stopped"},
    "offline_at_start": {"actual_status": "offline"},
}
AFTER_RUNNING: dict[str, dict[str, Any]] = {
    "exits": {"actual_status": "exited", "status_msg": ""},
    "offline": {"actual_status": "offline"},
    "unknown": {"actual_status": "unknown"},
    "outbid": {"event": "outbid"},
    "outbid_as_stop": {"event": "outbid_as_stop"},
    "preempted": {"event": "outbid_as_stop"},
}
LIFECYCLE_FAULTS = ("slow_start", *STUCK_STATES, *AFTER_RUNNING)
