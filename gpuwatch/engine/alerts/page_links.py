"""Where the web page shows what an alert is about. Pure."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

import msgspec

from gpuwatch.domain.alerts.alert import Alert
from gpuwatch.domain.watches.owner_names import Purpose

LAUNCH_ID = re.compile(r"[a-z2-7]{12}")


def page_path(alert: Alert) -> str:
    """The path of the page of its quote, job, launch or best offer; else of the alerts."""
    if alert.approval_id:
        return f"/approvals/{quote(alert.approval_id, safe='')}"
    if (job_id := job_id_of(alert)) is not None:
        return f"/jobs/{quote(job_id, safe='')}"
    if (launch_id := launch_id_of(alert)) is not None:
        return f"/launches/{launch_id}"
    if alert.offers:
        best = alert.offers[0]
        of = {"gpu": best.gpu, "provider": best.provider, "spot": "any", "offer": best.offer_id}
        return f"/market?{urlencode(of)}"
    return "/alerts"


def with_page_links(alert: Alert, public_url: str) -> Alert:
    """The alert, and its parts, with the address of its page; without the page's address, as it is."""
    if not public_url:
        return alert
    parts = tuple(with_page_links(part, public_url) for part in alert.parts)
    return msgspec.structs.replace(alert, parts=parts, page_url=f"{public_url}{page_path(alert)}")


def launch_id_of(alert: Alert) -> str | None:
    """Which launch an alert is about; None: it is not about a launch."""
    return alert.subject if alert.subject != alert.watch and LAUNCH_ID.fullmatch(alert.subject) else None


def job_id_of(alert: Alert) -> str | None:
    """Which job an alert is about; None: it is not about a job."""
    is_job = Purpose.of(alert.watch or "").job is not None and alert.subject == alert.watch
    return next((value for label, value in alert.facts if label == "Job"), None) if is_job else None
