"""The keeper's alerts, which bypass the outbox: an instance outlived its end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gpuwatch.domain.launches.instances.obligation import Obligation
from gpuwatch.domain.market.money import price_text
from gpuwatch.domain.market.pricing import usd
from gpuwatch.ports import Alert, AlertKind, Severity
from gpuwatch.redaction import redact


def ended_alert(one: Obligation, ids: Sequence[str], alone: str | None, *, alert_id: str, now: datetime) -> Alert:
    """Alert that the keeper, not the daemon, destroyed an instance, and that it did so late.

    Args:
        alone: why the daemon could not do it, in one line; None: no other fault is known.
    """
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.END,
        severity=Severity.CRITICAL,
        subject=one.launch_id,
        watch=one.watch,
        created_at=now,
        headline=f"{one.watch}: its instance outlived its end; the keeper destroyed it",
        facts=(*_facts(one, alone), ("Destroyed", ", ".join(ids))),
        why=f"Its end at {_at(one)} passed, and gpuwatch had not recorded its end.",
        did=f"{one.provider} accepted the destroy request. gpuwatch checks that the instance is gone.",
        can_do=(f"Check the instances at {one.provider}", "See what is wrong: gpuwatch doctor"),
    )


def not_ended_alert(one: Obligation, error: str, alone: str | None, *, alert_id: str, now: datetime) -> Alert:
    """Alert that an overdue instance cannot be ended."""
    what = f"instance {one.instance_id}" if one.instance_id else f"the instance labelled {one.label}"
    return Alert(
        alert_id=alert_id,
        kind=AlertKind.END,
        severity=Severity.CRITICAL,
        subject=one.launch_id,
        watch=one.watch,
        created_at=now,
        headline=f"{one.watch}: its instance outlived its end and cannot be destroyed",
        facts=(*_facts(one, alone), ("Error", redact(error))),
        why=f"Its end at {_at(one)} passed. It may still be billed.",
        did="gpuwatch retries every few seconds.",
        can_do=(f"Destroy {what} at {one.provider} manually", "See what is wrong: gpuwatch doctor"),
    )


def _facts(one: Obligation, alone: str | None) -> tuple[tuple[str, str], ...]:
    price = price_text(usd(one.price_microusd_hour))
    found = (
        ("Launch", one.launch_id),
        ("Provider", one.provider),
        ("Instance", one.instance_id or "id unknown"),
        ("GPU", f"{one.gpu_count} × {one.gpu}"),
        ("Price", f"${price} an hour"),
        ("Should have ended", _at(one)),
    )
    return found if alone is None else (*found, ("What is wrong", redact(alone)))


def _at(one: Obligation) -> str:
    return "an unknown time" if one.ends_at is None else f"{one.ends_at:%Y-%m-%d %H:%M:%S} UTC"
