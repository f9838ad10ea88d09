"""One alert of each kind, made by the real code, and its form on every channel.

`make golden` writes these forms again; review the difference as code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.app.owner_audit import audit_event
from gpuwatch.daemon.task_progress import FaultKind, TaskFault
from gpuwatch.daemon.task_supervisor import task_alert
from gpuwatch.domain.alerts import guard_texts, service_texts
from gpuwatch.domain.alerts.alert import alert_for_reading, event_json
from gpuwatch.domain.alerts.launch_texts import HELD, OVER, RUNNING
from gpuwatch.domain.history.past_lows import PriceRank
from gpuwatch.domain.launches.launch import EndReason, LaunchState
from gpuwatch.domain.launches.life.owner_decisions import Approval
from gpuwatch.domain.launches.life.strays import why_unknown
from gpuwatch.domain.watches.decide import Decision, DecisionReason
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.alerts import health_alerts
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.alerts.offer_alerts import offer_alert
from gpuwatch.engine.alerts.page_links import with_page_links
from gpuwatch.notifiers.email.mail_page import as_html
from gpuwatch.notifiers.telegram import render
from gpuwatch.notifiers.toolkit import as_text
from gpuwatch.ports import Alert, AlertKind, Instance, InstanceState, ProviderHealth, Severity
from tests.builders import NOON, a_match, a_watch, an_offer
from tests.domain.launches.guard_values import a_running_launch

FOLDER = Path(__file__).with_name("golden")
RENDERINGS = {
    "txt": as_text,
    "telegram.html": render,
    "mail.html": as_html,
    "webhook.json": lambda alert: json.dumps(event_json(alert), indent=1, ensure_ascii=False),
}
_FULL = an_offer(
    offer_id="28123456", machine_id="4711", gpu_count=2, quoted_usd_hour=5.8, region="Reykjanes", country="IS",
    vcpu=32.0, ram_gib=256.0, disk_free_gb=512.0, download_mbps=900.0, upload_mbps=850.0, cuda_max=12.8,
    available_until=NOON + timedelta(days=12), reliability=0.9921,
)  # fmt: skip
_LINKS = {"vastai": "https://cloud.vast.ai/create/"}


def _id() -> str:
    return "k3m5pq7rstuv"


def _match(approval: bool = False) -> Alert:
    watch = a_watch(name="h100-night", action=Action.ASK if approval else Action.ALERT, gpu_count_max=8)
    matches = (
        a_match(_FULL),
        a_match(msgspec.structs.replace(_FULL, offer_id="28123460", quoted_usd_hour=5.82, region="Oslo", country="NO")),
        a_match(an_offer(offer_id="28123477", quoted_usd_hour=2.95, gpu_count=1)),
    )
    decision = Decision(watch=watch.name, reason=DecisionReason.FIRST_MATCH, decided_at=NOON, matches=matches)
    asked = Approval(
        approval_id="uoyauilxpk2f",
        watch=watch.name,
        match=matches[0],
        created_at=NOON,
        deadline=NOON + timedelta(minutes=30),
    )
    return offer_alert(
        watch,
        decision,
        alert_id=_id(),
        zone=ZoneInfo("Europe/Berlin"),
        did="Asked you." if approval else 'This watch only sends alerts and does not rent (action = "alert").',
        links=_LINKS,
        approval=asked if approval else None,
        rank_of=lambda offer, verified: PriceRank(share=0.034, hours=702, days=30),
    )


def alerts_by_kind() -> dict[AlertKind, Alert]:
    """One of each kind, as a channel gets it from an installation with a web page."""
    return {kind: with_page_links(alert, "https://gpu.example.org") for kind, alert in _alerts_by_kind().items()}


def _alerts_by_kind() -> dict[AlertKind, Alert]:
    launch = a_running_launch(launch_id="k3f7q2mzt5ab", machine_id="60006")
    texts = LaunchAlerts(_id)
    over = msgspec.structs.replace(
        launch, state=LaunchState.ENDED, ended_at=NOON + timedelta(hours=3), end_reason=EndReason.STOPPED.text()
    )
    blind = ProviderHealth(
        complete_at=NOON - timedelta(minutes=90), blind_since=NOON, last_error="GET https://console.vast.ai: timed out"
    )
    orphan = Instance(instance_id="90001", label="gpuwatch-k3f7q2mzt5ab", state=InstanceState.RUNNING, status="running")
    budget = guard_texts.BUDGET_NEARLY.alert(
        _id(), NOON, budget=guard_texts.BUDGET_NAMES["max_usd_day"], limit="$100.00 in 2026-11-21", spent="$80.12",
        billed="", by_end="$104.50", words="3 launches", did=guard_texts.BUDGET_WARNS, severity=Severity.WARNING,
    )  # fmt: skip
    hanging = TaskFault(
        task="follow vastai", kind=FaultKind.HANGS, since=NOON - timedelta(minutes=6),
        cause="it waits in gpuwatch/providers/toolkit/http/client.py:120, stream",
    )  # fmt: skip
    return {
        AlertKind.MATCH: _match(),
        AlertKind.APPROVAL: _match(approval=True),
        AlertKind.RENT: texts.of(RUNNING, launch, NOON).alert,
        AlertKind.END: texts.of(OVER, over, NOON + timedelta(hours=3), end="ended", reason="You stopped it.").alert,
        AlertKind.HELD: texts.of(HELD, launch, NOON, candidate="INSTANCE", evidence=None).alert,
        AlertKind.ORPHAN: texts.orphan("vastai", orphan, why_unknown(None, orphan, "vastai") or "", NOON).alert,
        AlertKind.BUDGET: budget,
        AlertKind.REFUSED: texts.not_rented(launch, f"{EndReason.KEY.value}: 401", NOON).alert,
        AlertKind.BLIND: health_alerts.blind_alert("vastai", "hunt", blind, alert_id=_id(), now=NOON),
        AlertKind.RECOVERED: health_alerts.recovery_alert(
            "vastai", "hunt", blind, alert_id=_id(), now=NOON + timedelta(minutes=12)
        ),
        AlertKind.DRIFT: health_alerts.drift_alert("vastai", ["new field: sla_tier"], alert_id=_id(), now=NOON),
        AlertKind.CHANNEL: service_texts.REFUSES.alert(_id(), NOON, subject="email", error="535 login refused"),
        AlertKind.DAEMON: task_alert(hanging, is_essential=True, now=NOON),
        AlertKind.AUDIT: _audit(),
        AlertKind.TEST: service_texts.TEST.alert(_id(), NOON),
    }


def _audit() -> Alert:
    by, what = "web page (password)", "launch k3m5pq7rstuv stopped"
    sample = audit_event(by, what, subject="k3m5pq7rstuv", watch="h100-night").alert
    return msgspec.structs.replace(sample, alert_id=_id(), created_at=NOON)


def golden_files() -> Mapping[Path, str]:
    """Every golden file with its expected content."""
    shown = {kind: (alert, alert_for_reading(alert)) for kind, alert in alerts_by_kind().items()}
    return {
        FOLDER / f"{kind.value}.{ending}": rendering(stored if ending == "webhook.json" else read).rstrip("\n") + "\n"
        for kind, (stored, read) in shown.items()
        for ending, rendering in RENDERINGS.items()
    }


def write() -> None:
    """Write all, and remove files that belong to no kind."""
    files = golden_files()
    FOLDER.mkdir(exist_ok=True)
    for stale in set(FOLDER.iterdir()) - set(files):
        stale.unlink()
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
