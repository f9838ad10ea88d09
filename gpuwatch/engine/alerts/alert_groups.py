"""Combine several alerts into one message, and mention alerts that a channel never accepted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from gpuwatch.engine.alerts.alerts import alert_id_from
from gpuwatch.ports import Alert, AlertKind, OfferLine


def grouped_alert(alerts: Sequence[Alert]) -> Alert:
    """Combine several alerts into one message; a single one stays as it is.

    Args:
        alerts: at least one, in order.
    """
    if len(alerts) == 1:
        return alerts[0]
    cheapest = min((a.offers[0] for a in alerts if a.offers), key=_gpu_price, default=None)
    best = f", from ${cheapest.price_usd_gpu_hour} per GPU-hour" if cheapest else ""
    return Alert(
        alert_id=alert_id_from(" ".join(alert.alert_id for alert in alerts)),
        kind=alerts[0].kind,
        created_at=alerts[-1].created_at,
        headline=f"{_whose(alerts)}{best}",
        parts=tuple(alerts),
        severity=max((alert.severity for alert in alerts), key=lambda severity: severity.rank),
    )


def _whose(alerts: Sequence[Alert]) -> str:
    if not {alert.kind for alert in alerts} <= {AlertKind.MATCH, AlertKind.APPROVAL}:
        return f"{len(alerts)} alerts, the newest: {alerts[-1].headline}"
    watches = {alert.watch for alert in alerts}
    return f"{len(watches)} watches have offers" if len(watches) > 1 else f"{alerts[0].watch}: {len(alerts)} alerts"


def with_unreported(alert: Alert, unreported: Sequence[str]) -> Alert:
    """Add a line about earlier alerts that this channel never accepted.

    Args:
        unreported: their headlines, oldest first; empty: the alert stays as it is.
    """
    if not unreported:
        return alert
    newest = "; ".join(headline[:80] for headline in unreported[-3:])
    before = f"{len(unreported) - 3} more and: " if len(unreported) > 3 else ""
    number = f"{len(unreported)} earlier {'alert' if len(unreported) == 1 else 'alerts'}"
    return msgspec.structs.replace(alert, facts=(*alert.facts, ("Not sent here", f"{number} ({before}{newest})")))


def _gpu_price(line: OfferLine) -> Decimal:
    return Decimal(line.price_usd_gpu_hour)
