"""A dstack server and a gpuwatch daemon as child processes on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from gpuwatch.emulator import Marketplace

VERSION: Final = "0.22.5"
LOST_AFTER_S: Final = 10  # dstack's own limit is two minutes
ROOT: Final = Path(__file__).parents[2]
OFFERS: Final = [
    {"name": "p5.48xlarge", "price": 19.0, "spot": False},
    {"name": "p5.48xlarge-spot", "price": 8.0, "spot": True},
]
CONFIG = (
    "projects:\n- name: main\n  backends:\n  - type: aws\n    creds: {type: access_key, access_key: a, secret_key: b}\n"
)
FLEET = {"type": "fleet", "name": "gpus", "nodes": "0..40", "placement": "cluster", "spot_policy": "auto"}
SETTINGS = """
dry_run = false
database_url = "sqlite:///{folder}/gpuwatch.db"
[budget]
max_usd_hour = 400.0
[orchestrator]
tool = "dstack"
program = "{program}"
[providers.vastai]
base_url = "{url}"
api_key = "demo-key"
"""


class Dstack:
    """A server with its folder, and its command line."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self.python, self.version = folder, python, VERSION
        self.program = python.with_name("dstack")
        self.port = _free_port()
        self.env = {"PATH": f"{python.parent}:{os.environ['PATH']}", "HOME": str(folder / "home")}
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        for name in ("home", "machines", "server"):
            (self.folder / name).mkdir(parents=True)
        self.offer({})
        (self.folder / "server" / "config.yml").write_text(CONFIG)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for path in (self.folder / "machines").glob("*/pid"):
            _kill_group(int(path.read_text()))

    def offer(self, changed: dict[str, float]) -> None:
        """Set the offers of the cloud; changed: prices by name."""
        common = {"gpu": "H100", "count": 8, "memory_gib": 80, "region": "us-east-1", "machines": 20}
        offers = [{**common, **one, "price": changed.get(str(one["name"]), one["price"])} for one in OFFERS]
        (self.folder / "offers.json").write_text(json.dumps(offers))

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        env = self.env | {
            "CLUSTERS_FOLDER": str(self.folder),
            "CLUSTERS_LOST_AFTER_S": str(LOST_AFTER_S),
            "DSTACK_SERVER_DIR": str(self.folder / "server"),
            "DSTACK_SERVER_HOST": "127.0.0.1",
            "DSTACK_SERVER_PORT": str(self.port),
            "DSTACK_SERVER_ADMIN_TOKEN": "a-token-of-loopback",
            "DSTACK_UPDATE_DEFAULT_PROJECT": "1",
            "DSTACK_SERVER_LOG_FORMAT": "standard",
            "GRPC_ENABLE_FORK_SUPPORT": "false",
        }
        with (self.folder / "server.log").open("ab") as log:
            self._server = subprocess.Popen(
                [self.python, Path(__file__).with_name("dstack_server.py"), "--port", str(self.port)],
                env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        wait_for(lambda: self.said("ps").returncode == 0, "the server of dstack answers")

    def kill(self) -> None:
        """Kill the server; its machines go on."""
        if self._server is not None:
            _kill_group(self._server.pid)
            self._server.wait()

    def add_fleet(self) -> None:
        """Create the fleet that every run needs."""
        (self.folder / "fleet.yml").write_text(json.dumps(FLEET))
        applied = self.said("apply", "-y", "-d", "-f", "fleet.yml")
        assert applied.returncode == 0, applied.stdout + applied.stderr

    def said(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run its command line."""
        env = self.env | {"COLUMNS": "300", "TERM": "dumb"}
        return subprocess.run(
            [self.program, *words], env=env, cwd=self.folder, text=True, capture_output=True, check=False
        )

    def machines(self, run: str) -> list[dict[str, Any]]:
        """Return the machines of a run, gone or not, by rank."""
        found = [
            json.loads(path.read_text()) | {"folder": path.parent}
            for path in self.folder.glob("machines/*/machine.json")
        ]
        mine = [one | {"is_gone": (one["folder"] / "gone").exists()} for one in found if one["run"] == run]
        return sorted(mine, key=lambda one: int(one["rank"]))

    def lose(self, machine: dict[str, Any]) -> None:
        """Kill a machine, as a cloud that takes it back."""
        _kill_group(int((machine["folder"] / "pid").read_text()))


class Gpuwatch:
    """A daemon with its folder, and its command line."""

    def __init__(self, folder: Path, dstack: Dstack) -> None:
        self.folder, self._dstack = folder, dstack
        self._market = Marketplace(seed=3, key="demo-key", size=2, odd_rows=False)
        self._daemon: subprocess.Popen[bytes] | None = None
        self.env = dstack.env | {
            "PYTHONPATH": str(ROOT),
            "HF": "a-secret-text",
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def __enter__(self) -> Self:
        self._market.__enter__()
        settings = SETTINGS.format(folder=self.folder, program=self._dstack.program, url=self._market.url)
        (self.folder / "gpuwatch.toml").write_text(settings)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._market.__exit__(kind, error, trace)

    def start(self) -> None:
        """Start the daemon."""
        with (self.folder / "gpuwatch.log").open("ab") as log:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", "gpuwatch", "run"], cwd=self.folder, env=self.env,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill the daemon without a warning."""
        if self._daemon is not None:
            _kill_group(self._daemon.pid)
            self._daemon.wait()

    def said(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        argv = [sys.executable, "-m", "gpuwatch", *words]
        return subprocess.run(argv, cwd=self.folder, env=self.env, text=True, capture_output=True, check=False)

    def asked(self, *words: str) -> Any:
        """Run a command, and return its JSON."""
        ran = self.said(*words, "--json")
        return json.loads(ran.stdout) if ran.returncode == 0 else None


def venv_with_dstack(folder: Path) -> Path:
    """Return the interpreter of an environment that has dstack; creates it."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"dstack[server]=={VERSION}"], check=True)
    return python


def wait_for(look: Callable[[], Any], what: str, within_s: float = 900.0) -> Any:
    """Return the result of a check as soon as it finds something."""
    ends_at = time.monotonic() + within_s
    while (began := time.monotonic()) < ends_at:
        if found := look():
            return found
        time.sleep(max(1.0, 3 * (time.monotonic() - began)))  # both programs need the processor
    raise TimeoutError(f"not within {within_s:g} s: {what}")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
