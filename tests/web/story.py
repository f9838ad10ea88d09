"""A daemon with everything in it, for the pictures of the pages and for the tests that visit every page.

Two weeks of recorded prices and of ended launches, watches of every action, two machines, a job that runs and one that
waits, a paused watch, a quote that awaits its owner, and what went wrong (tests/web/story_troubles.py). The market is
the embedded one; everything else is as in production.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from gpuwatch.app.history.price_files import import_recorded
from gpuwatch.app.jobs.jobs import listed_jobs, submit_jobs
from gpuwatch.app.setup.demo import DROP_USD_HOUR, PROVIDER, demo_market, wait_until
from gpuwatch.app.setup.demo_jobs import missing_for_jobs
from gpuwatch.app.watches.pauses import pause
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.daemon.log_records import RecentLog
from gpuwatch.daemon.process import running_service
from gpuwatch.domain.jobs.job import JobState
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.emulator import Marketplace
from gpuwatch.redaction import redact
from gpuwatch.settings import Settings, load
from gpuwatch.web.context import WebContext
from gpuwatch.web.page import ServingProcess
from gpuwatch.web.server import WebServer
from tests.web.past_launches import record_past_launches
from tests.web.story_troubles import SETTINGS, record_troubles

PLANNED = "/plan?model=llama-3.1-8b&method=qlora&tokens=100&within=48&max_cost=40"
_WITHIN_S = 120.0  # a slow machine
_SETTINGS = """
timezone = "Europe/Berlin"
database_url = "sqlite:///{folder}/gpuwatch.db"
dry_run = false
language = "auto"

[record]
gpu = ["H100", "A100", "RTX 4090", "H200", "B200", "L40S"]

[budget]
max_usd_hour = 8.0
max_usd_day = 40.0
max_usd_month = 400.0
max_instances = 5

[providers.vastai]
base_url = "{url}"
api_key = "{key}"
commission = 0.20
poll_every = "5s"
search_interval = "0.2s"
sweep_every = "20s"

[[watch]]
name = "h100-night"
gpu = ["H100"]
gpu_count = {{ min = 1, max = 8 }}
max_price = 1.90
action = "launch"
disk_gb = 50
[watch.launch]
image = "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
max_runtime = "8h"
max_active = 1
max_total = 40

[[watch]]
name = "render"
gpu = ["RTX 4090"]
max_price = 0.60
action = "launch"
[watch.launch]
max_runtime = "12h"
max_active = 2
max_total = 40

[[watch]]
name = "a100-ask"
gpu = ["A100 SXM 80GB"]
max_price = 1.20
action = "ask"
[watch.launch]
max_runtime = "24h"
max_total = 0
approve_within = "1h"

[[watch]]
name = "a100-cheap"
gpu = ["A100 PCIe 80GB"]
gpu_count = {{ min = 1, max = 8 }}
max_price = 0.95

[[watch]]
name = "h200-deal"
gpu = ["H200"]
gpu_count = {{ min = 1, max = 8 }}
max_price = 2.40

[[watch]]
name = "b200-eu"
gpu = ["B200"]
max_price = 3.20

[web]
listen = "127.0.0.1:0"
"""
_TRAINING = (
    "for n in $(seq 1 2000); do"
    ' awk -v n=$n \'BEGIN { f = "step %d/2000  loss %.4f  %d tok/s\\n";'
    " printf f, n, 1.05 + 2 / (1 + n / 25), 3390 - n % 7 * 9 }';"
    " sleep 1; done"
)
_JOB = """
name = "{name}"
command = '''{command}'''
resources = {{ gpu = "{gpu}", disk_gb = 20 }}
limit = {{ max_price = {max_price}, max_usd = 5 }}
hours = 0.5
max_runtime = "50m"
"""


class Story(NamedTuple):
    """The running daemon.

    Attributes:
        paths: every page that exists, also those of single things.
    """

    settings: Settings
    market: Marketplace
    url: str
    codes: list[str]
    paths: tuple[str, ...]
    approval_id: str
    launch_id: str
    job_id: str


@contextmanager
def story(folder: Path) -> Iterator[Story]:
    """Run it until the block ends."""
    has_jobs = missing_for_jobs() is None
    with ExitStack() as stack:
        market, offer_id = stack.enter_context(demo_market(Path(folder, "machines") if has_jobs else None))
        _publish(market)
        path = folder / "gpuwatch.toml"
        path.write_text(_SETTINGS.format(folder=folder, url=market.url, key=market.key) + SETTINGS)
        path.chmod(0o600)
        settings = load(str(path), env={"STATE_DIRECTORY": str(folder)}, cwd=folder)
        import_recorded(settings, real_now(), dry_run=False, progress=_untold, provider=PROVIDER)
        store = stack.enter_context(open_store(settings))
        record_past_launches(store, real_now())
        record_troubles(settings, store, folder, real_now())
        service = stack.enter_context(running_service(settings, store, {}))
        codes: list[str] = []
        recent_log = RecentLog(redact)
        logging.getLogger().addHandler(recent_log)
        stack.callback(logging.getLogger().removeHandler, recent_log)
        owner = ServingProcess(config=str(path), recent_log=recent_log)
        context = WebContext(settings, codes.append, owner=owner)
        server = WebServer(context)
        context.credentials.print_code()
        server.start()
        stack.callback(server.stop)
        wait_until(lambda: service.polling.workers[PROVIDER].finished_rounds >= 2, "two polls", _WITHIN_S)
        market.reprice(offer_id, usd_hour=DROP_USD_HOUR)
        pause(settings, "b200-eu", 2 * 86_400, "budget for next month", actor="its owner")
        jobs = submit_jobs(settings, [_job(folder, "llama-ft", "L40S", 0.90), _job(folder, "eval", "H200", 1.10)]).jobs
        repository = service.launch_repository

        def running() -> list[str]:
            return [one.launch_id for one in repository.alive() if one.state is LaunchState.RUNNING]

        wait_until(lambda: len(running()) >= 2 + has_jobs, "the machines", _WITHIN_S)
        if has_jobs:
            wait_until(lambda: _states(settings)["llama-ft"] is JobState.RUNNING, "the job", _WITHIN_S)
        asked = wait_until(lambda: _open_approval(context), "a quote", _WITHIN_S)
        launch = next(one for one in repository.alive() if one.watch == "h100-night")
        yield Story(
            settings, market, server.url.rstrip("/"), codes,
            (
                "/", "/market", "/gpu/H100%20SXM", "/watches", "/watches/h100-night", "/watches/h100-night/edit",
                "/launches", f"/launches/{launch.launch_id}", "/approvals", f"/approvals/{asked}", "/jobs",
                f"/jobs/{jobs[0].job_id}", "/costs", "/plan", PLANNED, "/alerts", "/settings", "/log",
                "/login", "/no/such-page",
            ),
            asked, launch.launch_id, jobs[0].job_id,
        )  # fmt: skip


def _untold(title: str) -> AbstractContextManager[Callable[[str, int, int], None]]:
    return nullcontext(lambda *_: None)


def _publish(market: Marketplace) -> None:
    market.publish(gpu="H100 PCIE", count=1, usd_hour=1.70, geolocation="Iceland, IS")
    market.publish(gpu="A100 SXM4", count=1, usd_hour=0.60, gpu_ram=81920, geolocation="Michigan, US")
    market.publish(gpu="RTX 4090", count=1, usd_hour=0.30, geolocation="Sweden, SE")
    market.publish(gpu="H200", count=1, usd_hour=2.10, geolocation="Norway, NO")
    market.publish(gpu="L40S", count=1, usd_hour=0.55, geolocation="Quebec, CA")


def _job(folder: Path, name: str, gpu: str, max_price: float) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(_JOB.format(name=name, gpu=gpu, max_price=max_price, command=_TRAINING))
    return path


def _states(settings: Settings) -> dict[str, JobState]:
    return {job.name: job.state for job in listed_jobs(settings, all_jobs=True)}


def _open_approval(context: WebContext) -> str | None:
    context.forget_readings()
    return next(iter(context.glance().open_ids), None)
