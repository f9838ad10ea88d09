"""The alerts about recurring jobs: times that did not become runs. Pure. Their subject is the series."""

from __future__ import annotations

from gpuwatch.domain.alerts.alert import AlertKind, AlertSpec, Severity

_SHOW = "gpuwatch jobs show {subject}"

MISSED = AlertSpec(
    kind=AlertKind.RENT,
    severity=Severity.WARNING,
    once="series missed:{subject}:{last_ms}",
    headline="job {subject}: missed runs: {count}",
    facts=(("First", "{first}"), ("Last", "{last}"), ("Next", "{following}")),
    why="gpuwatch did not run when they were due.",
    did="{did}",
    can_do=(_SHOW, "To have one run make up for missed ones, change its file: gpuwatch docs recurring-jobs"),
)
CAUGHT_UP = "One run makes up for them: {run}."
NOT_CAUGHT_UP = "Nothing was started for them."
SKIPPED = AlertSpec(
    kind=AlertKind.RENT,
    severity=Severity.WARNING,
    once="series skipped:{subject}:{run_id}",
    headline="job {subject}: its previous run is not over",
    facts=(("Previous run", "{run}"), ("Next", "{following}")),
    why="A recurring job never has two runs at once.",
    did="The run of {planned} was skipped. Further ones while the previous run lasts are counted, not reported.",
    can_do=(_SHOW, "gpuwatch jobs cancel {run}"),
)
