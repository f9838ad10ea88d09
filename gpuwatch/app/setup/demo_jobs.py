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

from gpuwatch.app.jobs.job_output import job_log, job_results
from gpuwatch.app.jobs.jobs import job_details, submit_jobs
from gpuwatch.app.setup.demo import (
    DROP_USD_HOUR,
    GPU,
    MAX_PRICE,
    DemoFailed,
    PrintLine,
    demo_market,
    demo_settings,
    wait_until,
    wrapping,
)
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.process import running_service
from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.launches.money.launch_costs import cost_microusd
from gpuwatch.domain.market.money import MICRO, per_gpu_hour
from gpuwatch.emulator import Marketplace
from gpuwatch.emulator.instances.machine_sshd import has_sshd
from gpuwatch.settings import Settings

_NEEDED = ("ssh", "ssh-keygen", "ssh-keyscan")
_TIMEOUT_S = 120.0  # a slow machine
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


def run_job_demo(print_line: PrintLine) -> bool:
    """Run the demo of jobs. Returns whether every step happened; a failure is reported."""
    if (missing := missing_for_jobs()) is not None:
        print_line(f"gpuwatch demo --jobs {missing}")
        return False
    print_line = wrapping(print_line)
    with TemporaryDirectory(prefix="gpuwatch-demo-") as folder:
        try:
            with demo_market(Path(folder, "machines")) as (market, offer_id):
                settings = demo_settings(market, folder, watches=False)
                with open_store(settings) as store, running_service(settings, store, {}) as service:
                    _run_steps(print_line, settings, market, offer_id, service, Path(folder))
        except DemoFailed as failed:
            print_line(f"the demo failed: {failed}")
            return False
    print_line("")
    print_line("Next: gpuwatch jobs new --help                  plan a job and write its file")
    print_line("      gpuwatch jobs simulate FILE --since 30d   compute what it would have cost")
    return True


def _run_steps(
    print_line: PrintLine, settings: Settings, market: Marketplace, offer_id: int, service: Service, folder: Path
) -> None:
    print_line(f"1. a marketplace on {market.url}; each instance is a local folder with its own SSH server")
    (job,) = submit_jobs(settings, [_job_file(folder)]).jobs
    print_line(f"2. job {job.name} is queued (gpuwatch jobs submit): {GPU} at or under ${MAX_PRICE}/GPU-h")
    polls = service.polling.workers["vastai"].finished_rounds + 3
    wait_until(lambda: service.polling.workers["vastai"].finished_rounds >= polls, "three polls")
    print_line(f"   three polls, no launch yet: {_current_job(settings, job).state.value}")
    market.reprice(offer_id, usd_hour=DROP_USD_HOUR)
    print_line(
        f"3. a host lowers its price to {per_gpu_hour(DROP_USD_HOUR)} listed, "
        f"{per_gpu_hour(DROP_USD_HOUR * 1.2)} with commission:"
    )
    queued = wait_until(lambda: _job_past_state(settings, job, JobState.QUEUED), "an instance", _TIMEOUT_S)
    print_line(f"   rented once: launch {queued.launch_id}; its start script installs a key pair created for it")
    wait_until(lambda: _job_past_state(settings, job, JobState.PREPARING), "the start of the command", _TIMEOUT_S)
    print_line("4. the runner is installed, and the command runs (gpuwatch jobs logs -f):")
    ended = wait_until(lambda: _ended_job(settings, job), "its end", _TIMEOUT_S)
    for line in job_log(settings, job.job_id, None, _LOG_LINES).lines:
        print_line(f"   {line}")
    if ended.state is not JobState.DONE:
        raise DemoFailed(f"the job is {ended.state.value}: {ended.reason}")
    print_line("5. results are fetched, and verified by size and SHA-256 on both sides (gpuwatch jobs results):")
    for result in job_results(settings, job.job_id)[1]:
        print_line(f"   {_result_line(folder / 'results', result)}")
    _print_outcome(print_line, market, service, ended)


def _print_outcome(print_line: PrintLine, market: Marketplace, service: Service, job: Job) -> None:
    if market.instances():
        raise DemoFailed("the marketplace still has an instance")
    launch = service.launch_repository.get(job.launch_id or "")
    if launch is None:
        raise DemoFailed("the launch is not recorded")
    cost = cost_microusd(launch, real_now()) / MICRO
    print_line(
        f"6. the instance is destroyed and its end confirmed: the marketplace has {len(market.instances())} instances"
    )
    print_line(f"   it cost ${cost:.4f}; create requests received by the marketplace: {len(market.ledger.creates)}")


def _job_file(folder: Path) -> Path:
    work = f'command = "{_SHELL}"'
    if find_spec("numpy") is not None:
        shutil.copy(Path(__file__).with_name("demo_train.py"), folder / "train.py")
        command = f"{shlex.quote(sys.executable)} train.py"
        work = f"command = '''{command}'''\ninputs = [{{ source = \"train.py\", target = \"train.py\" }}]"
    path = folder / "demo-train.toml"
    path.write_text(_JOB.format(work=work, gpu=GPU, max_price=MAX_PRICE), encoding="utf-8")
    return path


def _current_job(settings: Settings, job: Job) -> Job:
    return job_details(settings, job.job_id).job


def _ended_job(settings: Settings, job: Job) -> Job | None:
    current = _current_job(settings, job)
    return current if current.is_over else None


def _job_past_state(settings: Settings, job: Job, state: JobState) -> Job | None:
    """The job once it has left the queue and this state; it may be over already."""
    current = _current_job(settings, job)
    return None if current.state in {JobState.QUEUED, JobState.RENTING, state} else current


def _result_line(results: Path, result: dict[str, Any]) -> str:
    """A line about a result, with the current size on disk."""
    path = results / Path(result["path"]).name
    content = path.read_bytes() if path.exists() else b""
    if hashlib.sha256(content).hexdigest() != result["sha256"]:
        raise DemoFailed(f"{path} differs from what was fetched")
    return f"{path.name:<12} {len(content):>6} bytes, sha256 {result['sha256'][:12]}…"
