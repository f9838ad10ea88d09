"""The rules and boards in deploy/, checked by Debian's Prometheus: with a daemon that rents, and by rule tests."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.app.jobs.jobs import submit_jobs
from gpuwatch.app.setup.metric_specs import METRICS
from gpuwatch.emulator import Delays, Marketplace
from gpuwatch.emulator.instances.machine_sshd import MachineSshd, has_sshd
from tests.checkout import ROOT
from tests.own_machines import let_in, nvidia_smi
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for
from tests.stored_jobs import a_running_job, relocated
from tests.telegram_double import telegram
from tests.web.served import served

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
BOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed (Debian: prometheus)",
)


OF_RUNNING_JOBS = "gpuwatch_job_"  # these metrics exist while a job is on an instance
OF_OWN_MACHINES = "gpuwatch_own_"  # and these where [own_machines] lists any
FROM_PAST_DAYS = "gpuwatch_budget_forecast_ratio"  # a budget has no forecast on its first day
PREPARE = '[prepare]\ncommand = "true"\nlimit = { max_price = 0.1 }\n'
RECURRING = """
command = "true"
resources = { gpu = "H100" }
limit = { max_usd = 1 }
schedule = "0 2 * * 6"
within = "6h"
"""


def expressions(*, board: str = "") -> list[str]:
    """Return the queries of every panel of every board, or of one board."""
    boards = [json.loads(path.read_text(encoding="utf-8")) for path in BOARDS if not board or path.stem == board]
    return [target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]]


def test_boards_show_metrics_that_exist_and_every_metric_is_shown() -> None:
    asked = " ".join(expressions())
    known = {metric.name for metric in METRICS}
    assert {name for name in known if name not in asked} == {
        "gpuwatch_poll_age_seconds",  # shown as its time, which a textfile also has
        "gpuwatch_rows_quota",
        "gpuwatch_forecast_reached_ratio",  # absent until a forecast is due: no value instead of 0
        "gpuwatch_forecast_saved_ratio",
    }


@needs_prometheus
def test_the_rules_are_valid_and_fire_when_they_should() -> None:
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(RULES.with_name("rules_test.yml"))]):
        ran = subprocess.run(["promtool", *command], capture_output=True, text=True, timeout=240, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_prometheus
@pytest.mark.slow
def test_every_panel_has_data_after_a_run_that_rents(tmp_path: Path) -> None:
    with Marketplace(seed=5, key="demo-key", size=40, delays=Delays(running_s=0.2)) as market, telegram() as double:
        bargain(market)
        port = _free_port()
        web = f'{notify_by(double)}\n[web]\nenabled = true\nlisten = "127.0.0.1:{port}"\n'
        home = Home(tmp_path, market.url, extra=web)
        _with_quota(home)
        with home.daemon() as child, _prometheus(tmp_path, port) as ask:
            wait_for(lambda: home.states() == ["running"])
            wait_for(lambda: ask("gpuwatch_reaction_seconds_count == 1"))
            absent = (OF_RUNNING_JOBS, OF_OWN_MACHINES, FROM_PAST_DAYS)
            asked = [expression for expression in expressions() if not any(name in expression for name in absent)]
            wait_for(lambda: all(map(ask, asked)))
            assert ask("up == 1")
            assert not ask('ALERTS{alertname="GpuwatchKeeperStopped"}')
            terminate(child)


@needs_prometheus
@pytest.mark.slow
def test_every_panel_of_jobs_has_data_while_one_runs(tmp_path: Path) -> None:
    with served(tmp_path) as web, _prometheus(tmp_path, int(web.url.rpartition(":")[2])) as ask:
        job = a_running_job(web.context.settings, tmp_path)
        a_running_job(web.context.settings, tmp_path, name="prepared", more=PREPARE)
        relocated(web.context.settings, job, 3.5, run_number=2)
        (tmp_path / "weekly.toml").write_text(RECURRING)
        submit_jobs(web.context.settings, [tmp_path / "weekly.toml"])
        wait_for(lambda: all(map(ask, expressions(board="jobs"))))
        (found,) = ask(f'gpuwatch_job_progress_ratio{{job_name="{job.name}"}}')
        assert (found["metric"]["job_name"], found["value"][1]) == (job.name, "0.25")
        assert [one["value"][1] for one in ask("gpuwatch_job_moves_saving_usd > 0")] == ["3.5"]
        (stage,) = ask("gpuwatch_job_stage == 1")
        assert (stage["metric"]["job_name"], stage["metric"]["stage"]) == ("prepared", "prepare")


@needs_prometheus
@pytest.mark.slow
@pytest.mark.skipif(not has_sshd(), reason="needs Debian's openssh-server")
def test_the_daemon_reads_own_machines_and_their_board_has_data(tmp_path: Path) -> None:
    with MachineSshd(tmp_path / "machine") as machine, Marketplace(seed=5, key="demo-key", size=4) as market:
        host = let_in(machine, tmp_path / "id")
        machine.override_program("nvidia-smi", nvidia_smi("A100 SXM"))
        port = _free_port()
        listed = f'{{ host = "{host}", usd_gpu_hour = 1.5 }}, {{ host = "{host.rpartition(":")[0]}:1" }}'
        own = f'[own_machines]\nevery = "1s"\nssh_key = "id"\nmachines = [{listed}]\n'
        home = Home(tmp_path, market.url, extra=f'{own}[web]\nenabled = true\nlisten = "127.0.0.1:{port}"\n')
        with home.daemon() as child, _prometheus(tmp_path, port) as ask:
            wait_for(lambda: all(map(ask, expressions(board="machines"))))
            up = {one["metric"]["host"]: one["value"][1] for one in ask("gpuwatch_own_machine_up")}
            assert up == {host: "1", f"{host.rpartition(':')[0]}:1": "0"}
            (used,) = ask('gpuwatch_own_gpu_utilization_ratio{index="1"}')
            assert (used["metric"]["gpu"], used["value"][1]) == ("A100 SXM 80GB", "0.89")
            assert all(one["value"][1] == "1.5" for one in ask("gpuwatch_own_gpu_price_usd_hour"))
            terminate(child)


def _with_quota(home: Home) -> None:
    file = home.folder / "gpuwatch.toml"
    file.write_text(file.read_text().replace("rows_per_day = 0", "rows_per_day = 20000"))


@contextmanager
def _prometheus(folder: Path, target: int) -> Iterator[Any]:
    """Run a real one that scrapes every second; yields a function that queries it."""
    port = _free_port()
    (folder / "prometheus.yml").write_text(
        f"global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{RULES}']\n"
        f"scrape_configs: [{{ job_name: gpuwatch, static_configs: [{{ targets: ['127.0.0.1:{target}'] }}] }}]\n"
    )
    log = (folder / "prometheus.log").open("wb")
    child = subprocess.Popen(
        [
            "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=log, stderr=log,
    )  # fmt: skip

    def ask(expression: str) -> list[Any]:
        address = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(address, timeout=240) as answer:
                return list(json.load(answer)["data"]["result"])
        except OSError:  # it is starting
            return []

    try:
        yield ask
    finally:
        child.terminate()
        child.wait(timeout=240)
        log.close()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
