"""Audit events: who changed what, and through which interface. No channel sends them; `gpuwatch alerts` lists them.

Every use case that carries out an action of the owner takes `actor` and stores one event for each change, in the same
transaction where the change is one. An action may come twice, late, or from two people: what is repeated changes
nothing and leaves no event.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import new_id, open_store, real_now
from gpuwatch.domain.alerts.service_texts import CHANGED_BY_OWNER
from gpuwatch.domain.market.offer import clean
from gpuwatch.ports import OutboxAlert
from gpuwatch.redaction import redact
from gpuwatch.storage.alerts.outbox import Outbox

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

log = logging.getLogger(__name__)

_MAX_LENGTH = 300  # of a text in an audit event


def audit_event(actor: str, action: str, *, subject: str, watch: str | None = None) -> OutboxAlert:
    """Return the event, to be stored with the change.

    Args:
        actor: who, and through which interface, such as "web page (password)".
        action: one line, such as "launch k3f7q2mzt5ab stopped".
    """
    return CHANGED_BY_OWNER.outbox(
        new_id(),
        real_now(),
        subject=subject,
        watch=watch,
        what=clean(redact(action), _MAX_LENGTH),
        actor=clean(redact(actor), _MAX_LENGTH),
    )


def record_audit(settings: Settings, actor: str, action: str, *, subject: str, watch: str | None = None) -> None:
    """Store the event of a change that is not in the store. Raises StoreError: it is done, but not recorded."""
    log.info("%s, by %s", action, actor)
    with open_store(settings) as store:
        Outbox(store).enqueue(audit_event(actor, action, subject=subject, watch=watch))
