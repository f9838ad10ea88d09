"""The lines by which an instance ends itself, in a real shell against a marketplace on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.providers.vastai.create import with_self_destruct
from gpuwatch.testing.loopback import ReceivedRequest, Server, serving

pytestmark = pytest.mark.slow
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LONG_AGO, NONE = NOW.replace(year=2020), timedelta()


class Box:
    """The inside of a container: a folder with its commands, and a marketplace that answers."""

    def __init__(self, folder: Path, server: Server, tools: tuple[str, ...]) -> None:
        self._bin, self._done = folder / "bin", folder / "done"
        self._bin.mkdir()
        self.server = server
        for tool in ("sh", "date", "echo", "tr", "sed", *tools):
            (self._bin / tool).symlink_to(shutil.which(tool) or tool)
        if "python3" in tools:
            self._command("python3", f'exec {sys.executable} "$@"')
        # Time passes quickly here; once the test is over, the endless script is killed by its own sleep.
        self._command("sleep", f"[ -e {self._done} ] && kill -9 $PPID; exec {shutil.which('sleep')} 0.05")

    def _command(self, name: str, does: str) -> None:
        path = self._bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)

    def start(self, script: str, shell: str = "sh", **env: str) -> subprocess.CompletedProcess[str]:
        """Run an onstart script to its end."""
        known = {"CONTAINER_ID": "77", "CONTAINER_API_KEY": "inst-t0k3n", "VAST_URL": self.server.url}
        return subprocess.run(
            [shutil.which(shell) or shell, "-c", script],
            env={"PATH": str(self._bin)} | known | env,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    def asked(self, count: int) -> list[ReceivedRequest]:
        """Return the first requests, once there are this many."""
        until = time.monotonic() + 60
        while len(self.server.requests) < count and time.monotonic() < until:
            time.sleep(0.02)
        return self.server.requests[:count]

    def end(self) -> None:
        """Wait for the script's end: without its commands, which are in the test's folder, it would spin for ever."""
        self._done.touch()
        until = time.monotonic() + 60
        while self._runs():
            assert time.monotonic() < until, "the endless script still runs"
            time.sleep(0.02)

    def _runs(self) -> bool:
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if os.fsencode(self._bin) in environ.read_bytes():
                    return True
        return False


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Callable[..., Box]]:
    boxes: list[Box] = []
    with serving(lambda request, wire: wire.answer(500, {})) as server:

        def made(*tools: str) -> Box:
            boxes.append(Box(tmp_path, server, tools))
            return boxes[0]

        yield made
        for one in boxes:
            one.end()


def _script(owners: str, at: datetime = LONG_AGO, left: timedelta = NONE) -> str:
    script = with_self_destruct(owners, at, at - left)
    assert script is not None
    return script


@pytest.mark.parametrize("tools", [("curl",), ("curl", "setsid"), ("python3",)], ids=" ".join)
def test_it_destroys_itself_with_its_own_key_and_stops_if_that_fails(box: Callable[..., Box], tools: Any) -> None:
    inside = box(*tools)
    inside.start(_script("true\n"))
    asked = inside.asked(6)
    assert [request.method for request in asked] == ["DELETE"] * 5 + ["PUT"]
    assert {request.path for request in asked} == {"/api/v0/instances/77/"}
    assert {request.headers["authorization"] for request in asked} == {"Bearer inst-t0k3n"}
    assert [request.json for request in asked] == [{}] * 5 + [{"state": "stopped"}]


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    "owners",
    [
        "echo mine\nwait\n",
        "set -eux\necho mine\nfalse\n",
        "echo mine\nexit 3\n",
        "exec echo mine\n",
        "echo mine\nkill $$\n",
    ],
)
def test_the_owners_script_runs_as_before_and_neither_ends_the_other(
    box: Callable[..., Box], owners: str, shell: str
) -> None:
    inside = box("curl", "setsid")
    alone = subprocess.run([shutil.which(shell) or shell, "-c", owners], capture_output=True, text=True, check=False)
    ended = inside.start(_script(owners), shell)
    assert (ended.stdout, ended.returncode) == (alone.stdout, alone.returncode) != ("", None)
    assert "t0k3n" not in ended.stdout + ended.stderr
    assert inside.asked(1)[0].method == "DELETE"


def test_it_counts_the_seconds_where_the_hosts_clock_is_slow(box: Callable[..., Box]) -> None:
    """400 seconds are 20 checks of the clock, which here take a twentieth of a second each."""
    inside = box("curl")
    began = time.monotonic()
    inside.start(_script("true\n", NOW.replace(year=2100), timedelta(seconds=400)))
    assert inside.asked(1)[0].method == "DELETE"
    assert time.monotonic() - began >= 0.05 * 20


def test_it_goes_by_the_clock_where_it_started_late(box: Callable[..., Box]) -> None:
    """Started again after its moment: it does not count again."""
    inside = box("curl")
    inside.start(_script("true\n", left=timedelta(days=300)))
    assert inside.asked(1)[0].method == "DELETE"


def test_it_does_nothing_before_its_moment(box: Callable[..., Box]) -> None:
    inside = box("curl")
    inside.start(_script("true\n", NOW.replace(year=2100), timedelta(days=1)))
    time.sleep(0.5)
    assert inside.server.requests == []


@pytest.mark.skipif(not os.access("/proc/1/environ", os.R_OK), reason="needs to read the environment of process 1")
def test_without_its_variables_it_looks_at_the_first_process(box: Callable[..., Box]) -> None:
    """They do not exist here, so the request is made without them: only other errors matter."""
    inside = box("curl")
    ended = inside.start(_script("echo mine\n"), CONTAINER_API_KEY="", CONTAINER_ID="")
    assert ended.stdout == "mine\n"
    assert inside.asked(1)[0].method == "DELETE"
