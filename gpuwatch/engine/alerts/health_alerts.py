"""Alerts about a marketplace: it does not answer, answers unusably, is back, or changed its format. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.setup.durations import format_duration, format_moment
from gpuwatch.ports import HUNT, SWEEP, Alert, AlertKind, ProviderHealth, Severity
from gpuwatch.redaction import redact

PRICE_FIELD = "price field"  # prefix of notes about a field that the price depends on
_NEWER = "Check for a newer gpuwatch"


class _LaneTexts(msgspec.Struct, frozen=True):
    """What an alert calls a lane, and the consequence of its blindness."""

    searches: str
    answer: str
    intervals: str
    unknown: str
    did: str


_LANES = {
    HUNT: _LaneTexts(
        searches="the hunt: offers at the limits of your watches",
        answer="answer",
        intervals="polling intervals",
        unknown="Its current offers are unknown.",
        did="gpuwatch keeps polling and sends an alert when it answers again. It rents nothing there until then.",
    ),
    SWEEP: _LaneTexts(
        searches="the sweep: all offers, for the history",
        answer="sweep",
        intervals="intervals of the sweep",
        unknown="The history has a gap. The hunt may be blind as well: a search at your limits returns few rows.",
        did="gpuwatch keeps polling and sends an alert when the sweep is answered again. The hunt continues.",
    ),
}


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
    what = _LANES[lane]
    if health.not_understood:
        headline = f"{provider} is not understood: no row of a {lane} answer can be used{_worst(changes, ' (', ')')}"
        why = f"An answer has rows, but none of them can be used: the format has changed. {what.unknown}"
    else:
        headline = f"{provider} is not answering: no complete {what.answer} for {_span(now - since)}"
        why = f"Three {what.intervals} passed without a complete answer. {what.unknown}"
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.BLIND,
        severity=_severity(changes),
        subject=provider,
        created_at=now,
        headline=headline,
        facts=(
            ("Provider", provider),
            ("Searches", what.searches),
            ("Since", format_moment(since)),
            *((("Changed", _shown(changes)),) if changes else ()),
            ("Last error", redact(health.last_error or "no complete answer")),
        ),
        why=why,
        did=what.did,
        can_do=("See what is wrong: gpuwatch doctor", *((_NEWER,) if health.not_understood else ())),
    )


def recovery_alert(provider: str, lane: str, health: ProviderHealth, *, alert_id: str, now: datetime) -> Alert:
    """Alert that a provider's answers arrive and are usable again.

    Args:
        health: as it was while the lane was blind.
    """
    blind_since = health.blind_since or now
    back = "is understood" if health.not_understood else "answers"
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.RECOVERED,
        subject=provider,
        created_at=now,
        headline=f"{provider} {back} again, after {_span(now - blind_since)}",
        facts=(
            ("Provider", provider),
            ("Searches", _LANES[lane].searches),
            ("Not understood since" if health.not_understood else "Not answering since", format_moment(blind_since)),
            ("Back", format_moment(now)),
        ),
        why="A complete answer arrived.",
        did="gpuwatch evaluates all its watches again. The gap stays visible in the history.",
    )


def quota_alert(provider: str, resets_at: datetime, *, alert_id: str, now: datetime) -> Alert:
    """Alert that a provider's daily row quota is used up."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.BLIND,
        subject=provider,
        created_at=now,
        headline=f"{provider} is not polled: today's row quota is used up",
        facts=(("Provider", provider), ("Resets", format_moment(resets_at))),
        why="The provider answers no searches until its quota resets.",
        did="gpuwatch stops polling until then and sends an alert when it starts again.",
        can_do=(
            "See the plan: gpuwatch providers",
            "Use fewer rows: raise sweep_every, or record fewer GPUs",
        ),
    )


def own_pause_alert(
    provider: str, rows_per_day: int, rows_used: int, resets_at: datetime, *, alert_id: str, now: datetime
) -> Alert:
    """Alert that gpuwatch has used the rows of its own plan; the provider refused nothing."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.DAEMON,
        subject=provider,
        created_at=now,
        headline=f"gpuwatch does not poll {provider} until {format_moment(resets_at)}: rows_per_day is used up",
        facts=(
            ("Provider", provider),
            ("Rows used today", f"{rows_used} of rows_per_day = {rows_per_day}"),
            ("Polls again", format_moment(resets_at)),
        ),
        why=f"Your setting providers.{provider}.rows_per_day limits the rows that gpuwatch requests in a UTC day.",
        did="gpuwatch polls and rents nothing there until then. The provider itself has not refused anything.",
        can_do=(
            f"Allow more rows: providers.{provider}.rows_per_day",
            "Use fewer rows: raise sweep_every, or record fewer GPUs",
            "See the plan: gpuwatch providers",
        ),
    )


def empty_alert(provider: str, rows_before: int, since: datetime, *, alert_id: str, now: datetime) -> Alert:
    """Alert that a provider answers, but suddenly without any offer."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.BLIND,
        subject=provider,
        created_at=now,
        headline=(
            f"{provider} lists no offers any more: its answers are empty, and had "
            f"{count_text(rows_before, 'row')} before"
        ),
        facts=(
            ("Provider", provider),
            ("Rows before", str(rows_before)),
            ("Empty since", format_moment(since)),
        ),
        why="Every answer since then was complete and empty. So many offers hardly sell out at once.",
        did="gpuwatch keeps polling and sends an alert when there are offers again. It counts this as no data.",
        can_do=("Compare with the provider's own page", "See what is wrong: gpuwatch doctor"),
    )


def filled_alert(provider: str, since: datetime, *, alert_id: str, now: datetime) -> Alert:
    """Alert that a provider's answers have offers again."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.RECOVERED,
        subject=provider,
        created_at=now,
        headline=f"{provider} lists offers again, after {_span(now - since)}",
        facts=(("Provider", provider), ("Empty since", format_moment(since)), ("Back", format_moment(now))),
        why="An answer with offers arrived.",
        did="gpuwatch evaluates all its watches again.",
    )


def drift_alert(provider: str, notes: Sequence[str], *, alert_id: str, now: datetime) -> Alert:
    """Alert that a provider's format changed."""
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.DRIFT,
        severity=_severity(notes),
        subject=provider,
        created_at=now,
        headline=f"{provider} changed its format{_worst(notes)}",
        facts=(("Provider", provider), ("Changed", _shown(notes))),
        why="The answer has new fields, or known fields are missing. Each change is reported once.",
        did="gpuwatch uses the rows it understands, and skips and counts the others.",
        can_do=("Compare prices with the provider's own page", _NEWER),
    )


def _severity(notes: Sequence[str]) -> Severity:
    return Severity.CRITICAL if any(note.startswith(PRICE_FIELD) for note in notes) else Severity.WARNING


def _shown(notes: Sequence[str]) -> str:
    return "; ".join(notes[:10]) + (f"; and {len(notes) - 10} more" if len(notes) > 10 else "")


def _worst(notes: Sequence[str], before: str = ": ", behind: str = "") -> str:
    """Return the most important change, price fields first: a field that gpuwatch reads and now cannot read."""
    lost = [note for note in notes if "field" in note and not note.startswith("new field")]
    return f"{before}{min(lost, key=lambda note: not note.startswith(PRICE_FIELD))}{behind}" if lost else ""


def _span(gone: timedelta) -> str:
    minutes = max(round(gone.total_seconds() / 60), 0)
    return format_duration(minutes * 60) if minutes else "less than a minute"
