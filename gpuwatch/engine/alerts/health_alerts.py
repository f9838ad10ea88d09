"""Alerts about a marketplace: the figures of its health, and the changes of its format. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.alerts import market_texts as texts
from gpuwatch.domain.alerts.alert import Alert, Severity
from gpuwatch.domain.setup.durations import format_duration, format_moment
from gpuwatch.ports import ProviderHealth
from gpuwatch.redaction import redact

PRICE_FIELD = "price field"  # prefix of notes about a field that the price depends on


def blind_alert(
    provider: str,
    lane: str,
    health: ProviderHealth,
    changes: Sequence[str] = (),
    *,
    alert_id: str,
    now: datetime,
) -> Alert:
    """Alert that a provider has given no complete answer for too long on one lane, or only unusable ones.

    Args:
        health: with `blind_since`.
        changes: of the format, as far as the parser can tell.
    """
    since = health.blind_since or now
    spec = texts.NOT_UNDERSTOOD if health.not_understood else texts.NOT_ANSWERING
    return spec.alert(
        alert_id,
        now,
        subject=provider,
        severity=_severity(changes),
        lane=texts.LANE_TEXTS[lane],
        lane_name=lane,
        span=span_text(now - since),
        since=format_moment(since),
        worst=_worst(changes, " (", ")"),
        changed=_shown(changes),
        error=redact(health.last_error or texts.NO_ERROR),
    )


def recovery_alert(provider: str, lane: str, health: ProviderHealth, *, alert_id: str, now: datetime) -> Alert:
    """Alert that a provider's answers arrive and are usable again.

    Args:
        health: as it was while the lane was blind.
    """
    since = health.blind_since or now
    spec = texts.UNDERSTOOD_AGAIN if health.not_understood else texts.ANSWERS_AGAIN
    return spec.alert(
        alert_id,
        now,
        subject=provider,
        lane=texts.LANE_TEXTS[lane],
        span=span_text(now - since),
        since=format_moment(since),
        back=format_moment(now),
    )


def drift_alert(provider: str, notes: Sequence[str], *, alert_id: str, now: datetime) -> Alert:
    """Alert that a provider's format changed."""
    return texts.FORMAT_CHANGED.alert(
        alert_id, now, subject=provider, worst=_worst(notes), changed=_shown(notes), severity=_severity(notes)
    )


def _severity(notes: Sequence[str]) -> Severity:
    return Severity.CRITICAL if any(note.startswith(PRICE_FIELD) for note in notes) else Severity.WARNING


def _shown(notes: Sequence[str]) -> str:
    shown = "; ".join(notes[:10])
    return shown if len(notes) <= 10 else texts.AND_MORE.format(shown=shown, count=len(notes) - 10)


def _worst(notes: Sequence[str], before: str = ": ", behind: str = "") -> str:
    """Return the most important change, price fields first: a field that gpuwatch reads and now cannot read."""
    lost = [note for note in notes if "field" in note and not note.startswith("new field")]
    return f"{before}{min(lost, key=lambda note: not note.startswith(PRICE_FIELD))}{behind}" if lost else ""


def span_text(gone: timedelta) -> str:
    """Return a span, to the minute."""
    minutes = max(round(gone.total_seconds() / 60), 0)
    return format_duration(minutes * 60) if minutes else texts.SHORT
