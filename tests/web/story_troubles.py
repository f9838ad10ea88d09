"""What goes wrong in the story: a provider that is silent, a machine that was ordered there, a job that failed."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import insert

from gpuwatch.domain.alerts.alert import outbox_alert
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState, new_launch
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.alerts.health_alerts import blind_alert
from gpuwatch.ports import LANES, ProviderHealth
from gpuwatch.settings import Settings
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.builders import a_match, a_watch, an_offer, changed
from tests.stored_jobs import a_running_job, moved

SILENT = "runpod"
SETTINGS = """
[providers.runpod]
base_url = "http://127.0.0.1:9"
api_key = "no-key"
"""
_LOG = "step 1/100 loss 2.5\nTraceback (most recent call last):\nFileNotFoundError: data/train.bin\n"


def record_troubles(settings: Settings, store: Database, folder: Path, now: datetime) -> None:
    """Write them as a daemon leaves them that was restarted a moment ago."""
    since = now - timedelta(minutes=26)
    error = "POST http://127.0.0.1:9/graphql: Connection refused"
    with SqlDecisionStore(store).open() as uow:
        for number, lane in enumerate(LANES):
            health = ProviderHealth(blind_since=since, last_error=error, reported=not number)
            uow.save_health(SILENT, lane, health)
            if health.reported:
                alert = blind_alert(SILENT, lane, health, alert_id="silent", now=since + timedelta(minutes=3))
                uow.enqueue(outbox_alert(alert))
    with store.write() as connection:
        connection.execute(insert(launches), launch_row_of(_held(since)))
    job = a_running_job(settings, folder, name="tokenize", log=_LOG)
    moved(settings, job, (JobState.FAILED,), now - timedelta(minutes=18), exit_code=1, reason="exit code 1")


def _held(ordered_at: datetime) -> Launch:
    """A machine whose order was not answered."""
    gpu = {"gpu": "RTX 4090", "gpu_wire": "RTX 4090", "gpu_memory_gib": 24.0}
    offer = an_offer(provider=SILENT, **gpu, quoted_usd_hour=0.34, region="Norway", country="NO")
    watch = a_watch(name="render", action=Action.LAUNCH, launch=LaunchSpec(max_runtime_s=12 * 3600))
    intent = Intent(watch=watch, match=a_match(offer, commission="0"), launch_id="heldheldheld", dry_run=False)
    held: Launch = changed(new_launch(intent, 1, ordered_at), state=LaunchState.HELD, requested_at=ordered_at)
    return held
