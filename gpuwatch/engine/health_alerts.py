"""Alerts about a marketplace that cannot be seen: not answering, not understood, back, in another format. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.watches.durations import format_duration
from gpuwatch.engine.alerts import format_moment
from gpuwatch.ports import Alert, AlertKind
from gpuwatch.redaction import redact


def blind_alert(provider: str, since: datetime, last_error: str, *, alert_id: str, now: datetime) -> Alert:
    """A provider has not given a complete answer for too long."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.BLIND,
        subject=provider,
        created_at=now,
        headline=f"{provider} is not answering: no complete answer for {_span(now - since)}",
        facts=(("Provider", provider), ("Since", format_moment(since)), ("Last error", redact(last_error))),
        why="Three polling intervals passed without a complete answer. Its current offers are unknown.",
        did="gpuwatch keeps polling and alerts you when it answers again. Nothing is rented there until then.",
        can_do=("See what is wrong: gpuwatch doctor",),
    )


def quota_alert(provider: str, resets_at: datetime, *, alert_id: str, now: datetime) -> Alert:
    """A provider's daily row quota is spent."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.BLIND,
        subject=provider,
        created_at=now,
        headline=f"{provider} is not polled: today's row quota is used up",
        facts=(("Provider", provider), ("Resets", format_moment(resets_at))),
        why="The provider answers no searches until its quota resets.",
        did="gpuwatch stops polling until then and alerts you when it starts again.",
        can_do=(
            "See the plan: gpuwatch providers",
            "Use fewer rows: raise sweep_every, or record fewer GPUs",
        ),
    )


def recovery_alert(provider: str, blind_since: datetime, now: datetime, *, alert_id: str) -> Alert:
    """A provider answers again."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.RECOVERED,
        subject=provider,
        created_at=now,
        headline=f"{provider} answers again, after {_span(now - blind_since)}",
        facts=(
            ("Provider", provider),
            ("Not answering since", format_moment(blind_since)),
            ("Back", format_moment(now)),
        ),
        why="A complete answer arrived.",
        did="All its watches are evaluated again. The gap stays visible in the history.",
    )


def drift_alert(provider: str, notes: Sequence[str], *, alert_id: str, now: datetime) -> Alert:
    """A provider's format changed."""
    shown = "; ".join(notes[:10]) + (f"; and {len(notes) - 10} more" if len(notes) > 10 else "")
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.DRIFT,
        subject=provider,
        created_at=now,
        headline=f"{provider} changed its format",
        facts=(("Provider", provider), ("Changed", shown)),
        why="The answer has new fields, or known fields are missing. Each change is reported once.",
        did="gpuwatch continues with what it understands; it skips and counts rows that it does not.",
        can_do=("Compare prices with the provider's own page", "Check for a newer gpuwatch"),
    )


def _span(gone: timedelta) -> str:
    minutes = max(round(gone.total_seconds() / 60), 0)
    return format_duration(minutes * 60) if minutes else "less than a minute"
