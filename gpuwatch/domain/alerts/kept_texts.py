"""The alerts about machines that are stopped with their disks kept. Pure.

`LaunchAlerts.of` (engine) adds the facts of the launch, the fields of `launch_texts`, and those of `kept_fields`.
"""

from __future__ import annotations

from gpuwatch.domain.alerts.alert import AlertKind, Severity
from gpuwatch.domain.alerts.launch_texts import DOCTOR, about_launch

_START = "Start it again: gpuwatch launches start {launch}"
_DESTROY = "Destroy the disk, and all that is on it: gpuwatch launches stop {launch}"
_DISK = (("Its disk", "{disk_day}"),)

DISK_KEPT = {  # the field `state`
    "stopping": "gpuwatch stops launch {launch} and keeps its disk.",
    "stopped": "Launch {launch} is stopped; its disk is kept.",
    "starting": "gpuwatch starts launch {launch} again.",
}

STOPPED_KEEPING = about_launch(
    "stopped; its disk is kept until {kept_until}",
    "Reason: {why}. No GPU is billed now. The disk is destroyed at {kept_until}.",
    facts=_DISK,
    can_do=(_START, _DESTROY),
)
STILL_KEPT = about_launch(
    "its disk is still kept, and billed",
    "It was stopped at {since}. The disk is destroyed at {kept_until}.",
    once="kept:{kept_since:%Y%m%dT%H%M%S}:{nth}:{launch}",
    facts=_DISK,
    did="Nothing: gpuwatch destroys the disk at {kept_until}.",
    can_do=(_START, _DESTROY),
)
KEPT_ENDS_SOON = about_launch(
    "its disk is destroyed soon, at {kept_until}",
    "The time for which it is kept is nearly over. What is on the disk is lost then.",
    kind=AlertKind.HELD,
    once="kept-ends:{kept_until}:{launch}",
    facts=_DISK,
    did="Nothing yet.",
    can_do=(_START, "Keep it longer: gpuwatch launches extend {launch} --by 1d"),
)
KEEPER_STOPPED = about_launch(
    "its end passed; the keeper stopped it and keeps its disk",
    "Its end at {end} passed, and gpuwatch had not recorded that it stopped. Its disk is billed.",
    kind=AlertKind.END,
    severity=Severity.CRITICAL,
    did="{provider} shows it as stopped. The disk is destroyed at {kept_until}.",
    can_do=(DOCTOR, _START, _DESTROY),
)
NOT_HALTED = about_launch(
    "it could not be stopped; it still runs and is billed",
    "{provider} did not confirm within {minutes} minutes that it stopped. Reason for the stop: {why}.",
    kind=AlertKind.HELD,
    once="not-halted:{launch}:{now:%Y-%m-%dT%H}",
    did="It runs on until its own end, at which gpuwatch destroys it with its disk.",
    can_do=(
        "Save its results",
        "Try again: gpuwatch launches stop {launch} --keep-disk",
        "End it now: gpuwatch launches stop {launch}",
    ),
)
HALT_REFUSED = about_launch(
    "{provider} refuses to stop it; it still runs and is billed",
    "{error}",
    kind=AlertKind.HELD,
    once="halt-refused:{launch}:{now:%Y-%m-%dT%H}",
    did="gpuwatch tries again.",
    can_do=("Stop it at {provider} manually", "End it: gpuwatch launches stop {launch}"),
)
RUNS_UNASKED = about_launch(
    "it runs although it was stopped; gpuwatch stops it again",
    "{provider} lists it as running. Somebody started it there, or a start that waited was carried out.",
    kind=AlertKind.HELD,
    once="runs-unasked:{launch}:{now:%Y-%m-%dT%H}",
    did="gpuwatch stops it. If that fails for minutes, it destroys the machine with its disk: its GPUs are billed.",
    can_do=("To use it: gpuwatch launches start {launch}",),
)
STARTED_AGAIN = about_launch("running again", "It was started again with its disk. It ends at {kept_until}.")
_TAKEN = (
    "Start it later: gpuwatch launches start {launch}",
    "If you need what is on the disk, copy it at {provider}; it is lost when the disk is destroyed",
    _DESTROY,
)
START_WAITS = about_launch(
    "it cannot start now: its GPUs are rented to another",
    "The start at {provider} waits until its GPUs are free; it may begin at any moment.",
    kind=AlertKind.HELD,
    once="start-waits:{kept_since:%Y%m%dT%H%M%S}:{launch}",
    facts=_DISK,
    did="gpuwatch waits for {start_minutes} minutes, then takes the start back. The disk is kept.",
    can_do=_TAKEN,
)
NOT_STARTED = about_launch(
    "it could not be started again; its disk is kept until {kept_until}",
    "It did not run within {start_minutes} minutes. Its GPUs may be rented to another.",
    kind=AlertKind.HELD,
    facts=_DISK,
    did="gpuwatch took the start back. Only the disk is billed, and destroyed at {kept_until}.",
    can_do=_TAKEN,
)
START_REFUSED = about_launch(
    "{provider} refuses to start it again",
    "{error}",
    kind=AlertKind.HELD,
    once="start-refused:{kept_since:%Y%m%dT%H%M%S}:{launch}",
    facts=_DISK,
    did="gpuwatch tries for {start_minutes} minutes, then leaves it stopped. The disk is kept.",
    can_do=_TAKEN,
)
