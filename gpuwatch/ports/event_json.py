"""An alert as JSON, the same for `gpuwatch alerts --json` and the webhook channel."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuwatch.domain.market.json_values import rfc3339
from gpuwatch.ports.alerts import Alert


def event_json(alert: Alert) -> dict[str, Any]:
    """All fields of an alert. Facts are an object; values of a repeated label are joined by "; "."""
    facts: dict[str, str] = {}
    for label, value in alert.facts:
        facts[label] = f"{facts[label]}; {value}" if label in facts else value
    return {
        "alert_id": alert.alert_id,
        "at": rfc3339(alert.created_at),
        "kind": alert.kind.value,
        "severity": alert.severity.value,
        "subject": alert.subject,
        "watch": alert.watch,
        "headline": alert.headline,
        "facts": facts,
        "offers": [msgspec.to_builtins(offer) for offer in alert.offers],
        "why": alert.why,
        "did": alert.did,
        "can_do": list(alert.can_do),
    }
