"""Audit events: who did what, and through which interface. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gpuwatch.domain.market.text import clean
from gpuwatch.engine.alerts import outbox_alert
from gpuwatch.ports import Alert, AlertKind, OutboxAlert
from gpuwatch.redaction import redact

_LONGEST = 300


def audit_alert(  # noqa: PLR0913 each is a part of the event
    actor: str,
    what: str,
    *,
    subject: str,
    watch: str | None,
    details: Sequence[str],
    alert_id: str,
    now: datetime,
) -> OutboxAlert:
    """Return the audit event of an action through the page, the API or a chat.

    Args:
        actor: such as "web page (password)".
        what: one line, such as "launch k3f7q2mzt5ab stopped".
    """
    alert = Alert(
        alert_id=alert_id,
        kind=AlertKind.AUDIT,
        created_at=now,
        headline=clean(redact(what), _LONGEST),
        subject=subject,
        watch=watch,
        facts=(
            ("By", clean(redact(actor), _LONGEST)),
            *(("Detail", clean(redact(detail), _LONGEST)) for detail in details),
        ),
        did="Done.",
    )
    return outbox_alert(alert)
