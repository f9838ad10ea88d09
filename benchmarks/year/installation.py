"""A large installation: 1,000 watches, 5,000 ended launches, 50 alive, 10,000 jobs, at the embedded marketplace.

    python -m benchmarks.year.installation [--queued 200] [--seconds 60] [--postgres]

An idle daemon: its share of a core, and the processor time of some pages. The 50 instances exist at the marketplace.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import insert

from benchmarks.idle import marketplace
from benchmarks.year.daemon import running
from benchmarks.year.market import GPUS
from benchmarks.year.postgres import postgres
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.jobs.job import Job, JobState, new_job
from gpuwatch.domain.jobs.job_definition import JobDefinition
from gpuwatch.domain.launches.instance import label_of
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.settings.validate import read_job_file
from gpuwatch.storage.jobs.job_repository import _row_of, insert_job
from gpuwatch.storage.setup.account_rows import ensure_installation
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.launch_rows import launch_row_of, row_of_event
from gpuwatch.storage.setup.migrate import upgrade
from gpuwatch.storage.setup.schema.job_tables import job as jobs
from gpuwatch.storage.setup.tables import launch, launch_event

WATCHES, ENDED, ALIVE, JOBS, QUEUED = 1_000, 5_000, 50, 10_000, 200
OFFERS = 2_000
PAGES = ("/", "/watches", "/launches", "/jobs", "/metrics")
_SETTLES_S = 40.0
_SETTINGS = """
database_url = "{database_url}"
dry_run = false
[budget]
max_usd_hour = 1000
max_usd_day = 10_000
max_usd_month = 100_000
max_instances = 100
[providers.vastai]
base_url = "{url}"
api_key = "demo-key"
[web]
enabled = true
listen = "127.0.0.1:0"
"""
_RENTS = 'action = "launch"\n[watch.launch]\nmax_runtime = "30d"\nmax_active = 2\n'
_JOB = """
command = "python train.py"
resources = { gpu = "H100 SXM" }
limit = { max_usd = 1 }
hours = 40
"""


def settings_toml(database_url: str, url: str) -> str:
    """Return the settings: watches of all GPUs, at prices that nothing has; one in twenty rents."""
    names = list(GPUS)
    tables = [
        f'[[watch]]\nname = "w{number}"\ngpu = "{names[number % len(names)]}"\n'
        f"max_price = {0.001 + number % 7 / 10_000}\n" + (_RENTS if number % 20 == 0 else "")
        for number in range(WATCHES)
    ]
    return _SETTINGS.format(database_url=database_url, url=url) + "".join(tables)


def build(database_url: str, url: str, folder: Path, queued: int = QUEUED) -> None:
    """Write launches and jobs, and rent the instances that are alive."""
    now = real_now()
    database = open_database(database_url)
    upgrade(database)
    with database.write() as connection:
        install_id = ensure_installation(connection, now).install_id
        rented = list(_rent(url, install_id, now))
        ended = [_ended_launch(number, now) for number in range(ENDED)]
        connection.execute(insert(launch), [launch_row_of(one) for one in (*ended, *rented)])
        moved = [
            row_of_event(one, before, "measured", one.intended_at)
            for one in ended
            for before in (None, LaunchState.RUNNING)
        ]
        connection.execute(insert(launch_event), moved)
        for one in _jobs(folder, now, queued):
            insert_job(connection, one, changed=0)
            if one.is_over:
                connection.execute(jobs.update().where(jobs.c.job_id == one.job_id), _row_of(one))
    database.close()


def _id(prefix: str, number: int, length: int = 12) -> str:
    digits = "abcdefghijklmnopqrstuvwxyz"
    text = ""
    while number:
        number, digit = divmod(number, len(digits))
        text = digits[digit] + text
    return prefix + text.rjust(length - len(prefix), "a")


def _ended_launch(number: int, now: datetime) -> Launch:
    began = now - timedelta(days=40 - number * 39 / ENDED)
    launch_id = _id("e", number)
    return Launch(
        launch_id=launch_id, watch=f"w{number % 50 * 20}", slot=0, provider="vastai", offer_id=str(number),
        machine_id=str(number), gpu="H100 SXM", gpu_count=1, spot=False, state=LaunchState.ENDED, dry_run=False,
        label=label_of(launch_id), listed_microusd_hour=2_000_000, price_microusd_hour=2_000_000,
        max_runtime_s=86_400.0,
        instance_id=str(9_000_000 + number), intended_at=began, requested_at=began, running_at=began,
        ended_at=began + timedelta(hours=2), end_reason="max_runtime",
    )  # fmt: skip


def _rent(url: str, install_id: str, now: datetime) -> Iterator[Launch]:
    """Rent offers of the marketplace, and yield their running launches."""
    query = {"limit": 200, "rentable": {"eq": True}, "type": "on-demand", "order": [["dph_total", "asc"]]}
    offers = _call(url, "POST", "/api/v0/bundles/", query)["offers"]
    number = 0
    for offer in offers:
        if number == ALIVE:
            return
        launch_id = _id("r", number)
        label = label_of(launch_id, install_id=install_id)
        body = {"client_id": "me", "image": "pytorch/pytorch", "disk": 10, "label": label, "runtype": "ssh"}
        try:
            made = _call(url, "PUT", f"/api/v0/asks/{offer['id']}/", body)
        except OSError:  # its machine is rented already
            continue
        listed = round(offer["dph_total"] * 1e6)
        yield Launch(
            launch_id=launch_id, watch=f"w{number * 20}", slot=0, provider="vastai", offer_id=str(offer["id"]),
            machine_id=str(offer["machine_id"]), gpu="H100 SXM", gpu_count=int(offer["num_gpus"]), spot=False,
            state=LaunchState.RUNNING, dry_run=False, label=label, listed_microusd_hour=listed,
            price_microusd_hour=listed, max_runtime_s=30 * 86_400.0, instance_id=str(made["new_contract"]),
            intended_at=now, requested_at=now, running_at=now, install_id=install_id,
        )  # fmt: skip
        number += 1
    raise SystemExit(f"only {number} of the marketplace's offers could be rented")


def _call(url: str, method: str, path: str, body: Mapping[str, Any]) -> Any:
    headers = {"Authorization": "Bearer demo-key", "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def _jobs(folder: Path, now: datetime, queued: int) -> Iterator[Job]:
    file = folder / "job.toml"
    file.write_text(_JOB)
    plain: JobDefinition = read_job_file(file)
    for number in range(JOBS):
        submitted = now - timedelta(minutes=JOBS - number)
        definition = msgspec.structs.replace(plain, name=f"job-{number}")
        job = new_job(definition, _id("j", number, 8), submitted)
        if number < JOBS - queued:
            state = JobState.FAILED if number % 10 == 0 else JobState.DONE
            job = msgspec.structs.replace(job, state=state, ended_at=submitted + timedelta(hours=1))
        yield job


class Measured(NamedTuple):
    """An idle daemon of the installation."""

    percent: float  # of a core
    pages: Mapping[str, float]  # CPU seconds
    peak_mb: float


def measure(
    database_url: str, server_pid: int | None, queued: int, seconds: float, on_idle: Sequence[str] = ()
) -> Measured:
    """Measure a daemon of the installation; the database must be empty.

    Args:
        on_idle: a command to run meanwhile, with the daemon's process id as its last argument, such as a profiler.
    """
    with tempfile.TemporaryDirectory() as name, marketplace(OFFERS) as url:
        folder = Path(name)
        database_url = database_url or f"sqlite:///{folder}/gpuwatch.db"
        build(database_url, url, folder, queued)
        with running(folder, settings_toml(database_url, url), server_pid) as daemon:
            time.sleep(_SETTLES_S)
            if on_idle:
                subprocess.run([*on_idle, str(daemon.pid)], check=True)
            percent = daemon.percent_of_a_core(seconds)
            return Measured(percent, {path: daemon.cpu_s_of(path) for path in PAGES}, daemon.peak_mb)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queued", type=int, default=QUEUED, help="jobs that wait; the others are over")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--on-idle", nargs="+", default=(), help="command to run meanwhile; gets the process id")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        server = stack.enter_context(postgres(Path(name))) if args.postgres else None
        url, pid = (server.create("installation"), server.pid) if server else ("", None)
        found = measure(url, pid, args.queued, args.seconds, args.on_idle)
    print(f"idle: {found.percent:.1f} % of a core, peak {found.peak_mb:.0f} MB")
    for path, cpu_s in found.pages.items():
        print(f"{path}: {cpu_s:.2f} CPU-s")


if __name__ == "__main__":
    main()
