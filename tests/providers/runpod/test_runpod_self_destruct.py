"""A pod ends itself at its deadline with RunPod's own tools in it; a real shell runs our stand-ins for them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuwatch.ports import Order
from gpuwatch.providers.runpod.create import create_body, self_destruct_lines
from tests.process.daemon_child import wait_for

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=6)
LONG_AGO = NOW.replace(year=2020)
KEY = "pod-t0k3n"


class Pod:
    """The inside of a container: only these commands exist, and their arguments are recorded."""

    def __init__(self, folder: Path) -> None:
        self._bin, self._done, self._log = folder / "bin", folder / "done", folder / "log"
        self._bin.mkdir()
        self._log.touch()
        for tool in ("sh", "date", "tr", "sed", "cat", "wc", "echo", "timeout"):
            (self._bin / tool).symlink_to(shutil.which(tool) or tool)
        # Time passes quickly here; once the test is over, the endless script is killed by its own sleep.
        self.command("sleep", f"[ -e {self._done} ] && kill -9 $PPID; exec {shutil.which('sleep')} 0.05")

    def command(self, name: str, does: str) -> None:
        path = self._bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)

    def has(self, name: str, refuses: str = "*") -> None:
        """Add a command that records its arguments, and fails for those that match a pattern."""
        self.command(name, f'echo "{name} $*" >>{self._log}; case "$*" in {refuses}) exit 1;; esac')

    def note_missing(self, tool: str) -> None:
        (self._bin / tool).unlink()

    def start(self, script: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self._bin), "RUNPOD_POD_ID": "pod77", "RUNPOD_API_KEY": KEY}
        bash = shutil.which("bash") or "bash"
        return subprocess.run([bash, "-c", script], env=env, capture_output=True, text=True, timeout=240, check=False)

    def asked(self, count: int) -> list[str]:
        """Return the first commands, once there are this many."""
        wait_for(lambda: len(self._log.read_text().splitlines()) >= count)
        return self._log.read_text().splitlines()[:count]

    def end(self) -> None:
        self._done.touch()


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    one = Pod(tmp_path)
    yield one
    one.end()


def _lines(at: datetime = LONG_AGO, left: timedelta = timedelta()) -> str:
    return self_destruct_lines(at, at - left)


def test_the_lines_stand_before_all_else_so_that_nothing_can_hold_them_up() -> None:
    order = Order(
        offer_id="NVIDIA L4/SECURE/1/EU-RO-1", label="l", image="i", disk_gb=10.0, onstart="bash train.sh",
        self_destruct_at=LATER, needs_ssh=True,
    )  # fmt: skip
    script = create_body(order, NOW, None)["cmd"][2]
    assert script.startswith("# gpuwatch: this pod ends itself at 2026-11-21T18:00:00Z\n")
    assert f"END={int(LATER.timestamp())} LEFT=21600 " in script
    assert script.endswith("bash train.sh\nexec sleep infinity")


@pytest.mark.parametrize("without", [[], ["timeout"]], ids=["timeout", "no timeout"])
def test_the_pod_removes_itself_by_the_command_that_runpod_put_there(pod: Pod, without: list[str]) -> None:
    pod.has("runpodctl", refuses="never")
    for tool in without:
        pod.note_missing(tool)
    pod.start(_lines())
    assert pod.asked(2) == ["runpodctl remove pod pod77"] * 2


def test_the_newer_command_has_another_order_of_words(pod: Pod) -> None:
    pod.has("runpodctl", refuses="remove*")
    pod.start(_lines())
    assert pod.asked(2) == ["runpodctl remove pod pod77", "runpodctl pod delete pod77"]


def test_what_refuses_to_delete_is_asked_to_stop_and_all_of_it_again(pod: Pod) -> None:
    pod.has("runpodctl")
    pod.command("curl", f'printf "curl " >>{pod._log}; cat >>{pod._log}; exit 22')
    pod.start(_lines())
    one = ["runpodctl remove pod pod77", "runpodctl pod delete pod77", f'curl header = "Authorization: Bearer {KEY}"']
    stop = ["runpodctl stop pod pod77", "runpodctl pod stop pod77"]
    assert pod.asked(12) == [*one * 3, *stop, one[0]]


@pytest.mark.parametrize("owners", ["echo mine\nwait\n", "set -eux\necho mine\nfalse\n", "exec echo mine\n"])
def test_the_owners_script_runs_as_before_and_shows_no_key(pod: Pod, owners: str) -> None:
    pod.has("runpodctl")
    alone = subprocess.run(["bash", "-c", owners], capture_output=True, text=True, check=False)
    ended = pod.start(_lines() + owners)
    assert (ended.stdout, ended.returncode) == (alone.stdout, alone.returncode)
    assert KEY not in ended.stdout + ended.stderr
    assert pod.asked(1) == ["runpodctl remove pod pod77"]


@pytest.mark.parametrize(
    ("at", "left"), [(NOW.replace(year=2100), timedelta(seconds=400)), (LONG_AGO, timedelta(days=300))]
)
def test_neither_a_slow_clock_nor_a_restart_puts_the_end_off(pod: Pod, at: datetime, left: timedelta) -> None:
    pod.has("runpodctl")
    pod.start(_lines(at, left))
    assert pod.asked(1) == ["runpodctl remove pod pod77"]


def test_before_its_moment_nothing_is_asked(pod: Pod) -> None:
    """The sleeps are counted: three checks of the clock passed, and the fourth command is still a sleep."""
    pod.has("runpodctl")
    pod.command("sleep", f'echo "sleep $*" >>{pod._log}; [ $(wc -l <{pod._log}) -lt 4 ] || kill -9 $PPID')
    pod.start(_lines(NOW.replace(year=2100), timedelta(days=3650)))
    assert pod.asked(4) == ["sleep 20"] * 4
