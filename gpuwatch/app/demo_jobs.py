"""`gpuwatch demo --jobs`: a job from its file to its verified results, on a machine with a real SSH server.

The market is simulated and the machine is a folder on this computer. The order, the key pair, the runner, the command,
the transfer of the results and the end of the instance are those of a real job.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpuwatch.app.demo import (
    DROP_USD_HOUR,
    GPU,
    MAX_PRICE,
    DemoFailed,
    Say,
    fitted,
    market_of_demo,
    settings_of_demo,
    until,
)
from gpuwatch.app.job_output import job_log, job_results
from gpuwatch.app.jobs import job_details, submit_jobs
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.process import running_service
from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.launches.billing import cost_microusd
from gpuwatch.domain.market.pricing import MICRO
from gpuwatch.emulator import Marketplace
from gpuwatch.emulator.machine_sshd import has_sshd
from gpuwatch.settings import Settings

_NEEDED = ("ssh", "ssh-keygen", "ssh-keyscan")
_WITHIN_S = 120.0  # a slow machine
_LOG_LINES = 4
# without numpy: the same shape of work in the shell
_SHELL = (
    "mkdir -p out; for n in 1 2 3 4; do echo step $n/4; sleep 0.5; done; "
    "echo trained > out/weights.txt; echo '[1.0, 0.5]' > out/loss.json"
)
_JOB = """
name = "demo-train"
{work}
results = [{{ source = "out/*", target = "results" }}]
resources = {{ gpu = "{gpu}", disk_gb = 20 }}
limit = {{ max_price = {max_price}, max_usd = 5 }}
hours = 0.5
max_runtime = "30m"
"""


def missing_for_jobs() -> str | None:
    """Why machines with an SSH server are unavailable here, in one line; None: they are available."""
    absent = [name for name in _NEEDED if shutil.which(name) is None]
    if absent or not has_sshd():
        return "requires an SSH server and client on this machine; Debian: apt install openssh-server openssh-client"
    return None


def play_jobs(say: Say) -> bool:
    """Run the demo of jobs. Returns whether every step happened; a failure is reported."""
    if (why := missing_for_jobs()) is not None:
        say(f"gpuwatch demo --jobs {why}")
        return False
    say = fitted(say)
    with TemporaryDirectory(prefix="gpuwatch-demo-") as folder:
        try:
            with market_of_demo(Path(folder, "machines")) as (market, offer_id):
                settings = settings_of_demo(market, folder, watches=False)
                with open_store(settings) as store, running_service(settings, store, {}) as service:
                    _story(say, settings, market, offer_id, service, Path(folder))
        except DemoFailed as failed:
            say(f"the demo failed: {failed}")
            return False
    say("")
    say("Next: gpuwatch job new --help                  plan a job and write its file")
    say("      gpuwatch job simulate FILE --since 30d   compute what it would have cost")
    return True


def _story(say: Say, settings: Settings, market: Marketplace, offer_id: int, service: Service, folder: Path) -> None:
    say(f"1. a marketplace on {market.url}; each instance is a local folder with its own SSH server")
    (job,) = submit_jobs(settings, [_job_file(folder)])
    say(f"2. job {job.name} is queued (gpuwatch job submit): {GPU} at or under {MAX_PRICE} $ per GPU-hour")
    polls = service.polling.workers["vastai"].finished_rounds + 3
    until(lambda: service.polling.workers["vastai"].finished_rounds >= polls, "three polls")
    say(f"   three polls, no launch yet: {_reached(settings, job).state.value}")
    market.reprice(offer_id, usd_hour=DROP_USD_HOUR)
    say(f"3. a host lowers its price to {DROP_USD_HOUR:.2f} $ listed, {DROP_USD_HOUR * 1.2:.2f} $ with commission:")
    found = until(lambda: _past(settings, job, JobState.QUEUED), "an instance", _WITHIN_S)
    say(f"   rented once: launch {found.launch_id}; its start script installs a key pair created for it")
    until(lambda: _past(settings, job, JobState.PREPARING), "the start of the command", _WITHIN_S)
    say("4. the runner is installed, and the command runs (gpuwatch job logs -f):")
    done = until(lambda: _ended(settings, job), "its end", _WITHIN_S)
    for line in job_log(settings, job.job_id, None, _LOG_LINES).lines:
        say(f"   {line}")
    if done.state is not JobState.DONE:
        raise DemoFailed(f"the job is {done.state.value}: {done.reason}")
    say("5. results are fetched, and verified by size and SHA-256 on both sides (gpuwatch job results):")
    for one in job_results(settings, job.job_id)[1]:
        say(f"   {_checked(folder / 'results', one)}")
    _print_outcome(say, market, service, done)


def _print_outcome(say: Say, market: Marketplace, service: Service, done: Job) -> None:
    if market.instances():
        raise DemoFailed("the marketplace still has an instance")
    launch = service.launch_repository.get(done.launch_id or "")
    if launch is None:
        raise DemoFailed("the launch is not recorded")
    cost = cost_microusd(launch, real_now()) / MICRO
    say(f"6. the instance is destroyed and its end confirmed: the marketplace has {len(market.instances())} instances")
    say(f"   it cost {cost:.4f} $; create requests received by the marketplace: {len(market.ledger.creates)}")


def _job_file(folder: Path) -> Path:
    work = f'command = "{_SHELL}"'
    if find_spec("numpy") is not None:
        shutil.copy(Path(__file__).with_name("demo_train.py"), folder / "train.py")
        command = f"{shlex.quote(sys.executable)} train.py"
        work = f"command = '''{command}'''\ninputs = [{{ source = \"train.py\", target = \"train.py\" }}]"
    path = folder / "demo-train.toml"
    path.write_text(_JOB.format(work=work, gpu=GPU, max_price=MAX_PRICE), encoding="utf-8")
    return path


def _reached(settings: Settings, job: Job) -> Job:
    return job_details(settings, job.job_id).job


def _ended(settings: Settings, job: Job) -> Job | None:
    found = _reached(settings, job)
    return found if found.is_over else None


def _past(settings: Settings, job: Job, state: JobState) -> Job | None:
    """The job once it has left the queue and this state; it may be over already."""
    found = _reached(settings, job)
    return None if found.state in {JobState.QUEUED, JobState.RENTING, state} else found


def _checked(results: Path, one: dict[str, Any]) -> str:
    """A line about a result, with the current size on disk."""
    path = results / Path(one["path"]).name
    content = path.read_bytes() if path.exists() else b""
    if hashlib.sha256(content).hexdigest() != one["sha256"]:
        raise DemoFailed(f"{path} differs from what was fetched")
    return f"{path.name:<12} {len(content):>6} bytes, sha256 {one['sha256'][:12]}…"
