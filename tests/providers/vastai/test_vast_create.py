"""The create request: how each part of an order is sent, and refusals before it is sent."""

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

from gpuwatch.errors import OrderRefused, RefusalKind
from gpuwatch.ports import Order, Registry, Volume
from gpuwatch.providers.vastai.create import ONSTART_LENGTH, create_body
from gpuwatch.providers.vastai.self_destruct import with_self_destruct
from gpuwatch.testing.loopback import ReceivedRequest, Server, serving

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=6)
LONG_AGO, NONE = NOW.replace(year=2020), timedelta()


def _body(**values: Any) -> dict[str, Any]:
    order = {"offer_id": "1", "label": "l", "image": "i", "disk_gb": 10.0}
    return create_body(Order(**(order | values)), NOW)


def _refusal(**values: Any) -> str:
    with pytest.raises(OrderRefused) as refused:
        _body(**values)
    assert refused.value.kind is RefusalKind.BAD_ORDER
    return str(refused.value)


@pytest.mark.parametrize(("wanted", "ordered"), [(0.0, 8.0), (8.0, 8.0), (50.5, 50.5)])
def test_no_smaller_disk_is_ordered_than_can_be(wanted: float, ordered: float) -> None:
    assert _body(disk_gb=wanted)["disk"] == ordered


def test_ports_become_dockers_options_beside_the_environment() -> None:
    env = _body(env={"A": "b"}, ports=("8000", "8080:80", "53/udp", "9000:90/tcp", "70000"))["env"]
    assert env == {
        "A": "b", "-p 8000:8000": "1", "-p 8080:80": "1", "-p 53:53/udp": "1", "-p 9000:90/tcp": "1",
        "-p 70000:70000": "1",
    }  # fmt: skip


@pytest.mark.parametrize("port", ["", "x", "0", "65536", "-1", "1:2:3", "80/icmp", "80 -v /:/host", "８０", "99999999"])
def test_what_is_no_port_is_refused(port: str) -> None:
    assert "port" in _refusal(ports=(port,))


def test_more_ports_than_are_opened_are_refused() -> None:
    assert "65 ports" in _refusal(ports=tuple(str(number) for number in range(1000, 1065)))


def test_a_registrys_login_is_dockers_arguments() -> None:
    registry = Registry(server="ghcr.io", username="me", password="t0k3n")
    assert _body(registry=registry)["image_login"] == "-u me -p t0k3n ghcr.io"


@pytest.mark.parametrize("password", ["", "two words", 'a"b', "a'b", "a\nb"])
def test_a_login_that_the_wire_cannot_carry_is_refused_without_telling_it(password: str) -> None:
    reported = _refusal(registry=Registry(server="ghcr.io", username="me", password=password))
    assert not password or password not in reported


def test_a_volume_is_linked_or_made() -> None:
    assert _body(volume=Volume(mount="/data", volume_id="7"))["volume_info"] == {
        "mount_path": "/data", "create_new": False, "volume_id": 7,
    }  # fmt: skip
    assert _body(volume=Volume(mount="/data", volume_id="9", size_gb=50.0))["volume_info"] == {
        "mount_path": "/data", "create_new": True, "volume_id": 9, "size": 50.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "volume",
    [
        Volume(mount="/data", size_gb=5.0),
        Volume(mount="/data"),
        Volume(mount="data", volume_id="1"),
        Volume(mount="/a b", volume_id="1"),
        Volume(mount="/a", volume_id="x"),
    ],
)
def test_a_volume_that_cannot_be_is_refused(volume: Volume) -> None:
    assert "volume" in _refusal(volume=volume)


def test_a_template_keeps_what_the_order_leaves_empty() -> None:
    body = _body(template="abc", image="", runtype="")
    assert body["template_hash_id"] == "abc"
    assert not {"image", "runtype", "onstart"} & set(body)
    assert _body(template="abc", image="i", runtype="jupyter")["runtype"] == "jupyter_direc ssh_direc ssh_proxy"
    assert "image" in _refusal(image="")


@pytest.mark.parametrize(
    ("runtype", "wire"),
    [
        ("ssh", "ssh_direc ssh_proxy"),
        ("ssh_proxy", "ssh_proxy"),
        ("jupyter_proxy", "jupyter_proxy ssh_proxy"),
        ("args", "args"),
    ],
)
def test_runtypes_are_the_wires_words(runtype: str, wire: str) -> None:
    assert _body(runtype=runtype)["runtype"] == wire


@pytest.mark.parametrize("runtype", ["", "sssh", "ssh jupyter"])
def test_an_unknown_runtype_is_refused(runtype: str) -> None:
    assert "jupyter" in _refusal(runtype=runtype)


def test_an_onstart_that_is_too_long_is_refused_and_the_limit_named() -> None:
    assert _body(onstart="x" * ONSTART_LENGTH)["onstart"] == "x" * ONSTART_LENGTH
    assert "4048" in _refusal(onstart="x" * (ONSTART_LENGTH + 1))
    assert "self_destruct" in _refusal(onstart="x" * ONSTART_LENGTH, self_destruct_at=LATER)


# --- self_destruct ---------------------------------------------------------------------------------------------------


def test_the_lines_stand_before_the_owners_script() -> None:
    onstart = _body(onstart="bash train.sh\n", self_destruct_at=LATER)["onstart"]
    assert onstart.startswith("# gpuwatch: this instance ends itself at 2026-11-21T18:00:00Z\n")
    assert onstart.endswith("\nbash train.sh\n")
    assert f"END={int(LATER.timestamp())} LEFT=21600 " in onstart
    assert len(onstart) < 1_600  # most of the marketplace's 4,048 characters are the owner's


def test_a_first_line_that_names_a_shell_stays_the_first() -> None:
    script = with_self_destruct("#!/usr/bin/env bash\necho hi\n", LATER, NOW)
    assert script is not None
    assert script.startswith("#!/usr/bin/env bash\n# gpuwatch:")
    assert script.endswith("\necho hi\n")


def test_where_the_lines_cannot_stand_the_order_is_refused() -> None:
    assert "shell" in _refusal(onstart="#!/usr/bin/env python3\nprint()", self_destruct_at=LATER)
    assert "entrypoint" in _refusal(onstart="bash", runtype="args", self_destruct_at=LATER)
    assert "template" in _refusal(template="abc", self_destruct_at=LATER)
    assert "onstart" in _body(template="abc", onstart="", self_destruct_at=LATER)


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
        until = time.monotonic() + 15
        while len(self.server.requests) < count and time.monotonic() < until:
            time.sleep(0.02)
        return self.server.requests[:count]

    def end(self) -> None:
        """Wait for the script's end: without its commands, which are in the test's folder, it would spin for ever."""
        self._done.touch()
        until = time.monotonic() + 15
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
