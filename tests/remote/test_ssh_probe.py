"""A probe through the SSH port: a real client, a real server. Only `nvidia-smi` is a stand-in: no GPU is needed."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuwatch.domain.launches.instances.instance_checks import MeasuredInstance
from gpuwatch.ports.remote import InstanceUnreachable, LoginRefused
from gpuwatch.remote.ssh_probe import SshProbe, parse_probe_output
from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter, serving
from tests.ssh_server import SshServer, ssh_server

H100 = "NVIDIA H100 80GB HBM3"


@contextmanager
def speaking(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """A TCP server that sends the given bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def test_an_ssh_server_is_known_by_its_banner() -> None:
    with speaking(lambda line: line.sendall(b"SSH-2.0-OpenSSH_9.6\r\nmore")) as port:
        assert SshProbe().banner("127.0.0.1", port) == "SSH-2.0-OpenSSH_9.6"


def test_a_banner_may_come_in_pieces() -> None:
    def pieces(line: socket.socket) -> None:
        for part in (b"SS", b"H-2.0-", b"x\n"):
            line.sendall(part)
            time.sleep(0.02)

    with speaking(pieces) as port:
        assert SshProbe().banner("127.0.0.1", port) == "SSH-2.0-x"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.1 400 Bad\r\n", "not an SSH server"),
        (b"", "closes the connection"),
        (b"\x1b]0;x\x07\n", "not an SSH server"),
    ],
)
def test_something_else_on_the_port_is_no_answer(said: bytes, words: str) -> None:
    with speaking(lambda line: line.sendall(said)) as port, pytest.raises(InstanceUnreachable, match=words) as caught:
        SshProbe().banner("127.0.0.1", port)
    assert "\x1b" not in str(caught.value)


def test_silence_ends_with_the_deadline() -> None:
    ticks = iter([0.0, 1.0, 5.1])
    with speaking(lambda line: line.sendall(b"SSH")) as port, pytest.raises(InstanceUnreachable, match="sends no data"):
        SshProbe(monotonic=lambda: next(ticks)).banner("127.0.0.1", port)


def test_a_closed_port_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(InstanceUnreachable):
        SshProbe().banner("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("-oProxyCommand=touch x", 22), ("a b", 22), ("", 22), ("h", 0), ("h", -5)])
def test_what_is_no_address_is_never_used(host: str, port: int, tmp_path: Path) -> None:
    with pytest.raises(InstanceUnreachable, match="address"):
        SshProbe().banner(host, port)
    with pytest.raises(InstanceUnreachable, match="address"):
        SshProbe(client=str(tmp_path / "none")).measure(host, port, "key", download=False)


# --- inside -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    stand_in = tmp_path / "bin" / "nvidia-smi"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\necho '{H100}, 81559'\necho '{H100}, 81559'\n")
    stand_in.chmod(0o755)
    with ssh_server(tmp_path, {"PATH": f"{stand_in.parent}:{os.environ['PATH']}"}) as running:
        yield running


def test_it_logs_in_and_reads_the_gpus(server: SshServer) -> None:
    found = SshProbe().measure("127.0.0.1", server.port, str(server.key_file), download=False)
    assert found == MeasuredInstance(gpus=((H100, 81_559.0),) * 2)
    assert server.users == ["root"]
    assert "curl" not in server.commands[0]


def test_it_logs_in_as_the_user_that_the_instance_wants(server: SshServer) -> None:
    SshProbe().measure("127.0.0.1", server.port, str(server.key_file), download=False, user="ubuntu")
    assert server.users == ["ubuntu"]


@pytest.mark.parametrize("user", ["-oProxyCommand=touch x", "a b", "a@b", "x" * 40, "é"])
def test_a_user_that_is_none_is_not_tried(server: SshServer, user: str) -> None:
    with pytest.raises(InstanceUnreachable, match="no valid address"):
        SshProbe().measure("127.0.0.1", server.port, str(server.key_file), download=False, user=user)
    assert server.users == []


def test_it_measures_a_real_download(server: SshServer) -> None:
    def answer(_request: ReceivedRequest, wire: ReplyWriter) -> None:
        wire.answer(200, b"x" * 300_000)

    with serving(answer) as files:
        probe = SshProbe(url=f"{files.url}/file")
        found = probe.measure("127.0.0.1", server.port, str(server.key_file), download=True)
    assert found.download_mbps is not None
    assert found.download_mbps > 1


def test_a_file_that_is_not_there_says_nothing_of_the_speed(server: SshServer) -> None:
    with serving(lambda _request, wire: wire.answer(503, b"x" * 1000)) as files:
        probe = SshProbe(url=f"{files.url}/file")
        found = probe.measure("127.0.0.1", server.port, str(server.key_file), download=True)
    assert (found.download_mbps, len(found.gpus)) == (None, 2)


def test_a_key_that_it_does_not_know_is_distinguished(server: SshServer, tmp_path: Path) -> None:
    with pytest.raises(LoginRefused, match="ermission denied"):
        SshProbe().measure("127.0.0.1", server.port, str(_other_key(tmp_path)), download=False)
    assert server.commands == []


def _other_key(folder: Path) -> Path:
    import asyncssh

    path = folder / "other"
    path.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    path.chmod(0o600)
    return path


def test_a_key_file_that_is_not_there_is_no_fault_of_the_machine(server: SshServer, tmp_path: Path) -> None:
    with pytest.raises(LoginRefused):
        SshProbe().measure("127.0.0.1", server.port, str(tmp_path / "none"), download=False)


def test_a_long_path_of_a_key_does_not_hide_that_it_is_refused(server: SshServer, tmp_path: Path) -> None:
    """The client names the file first, and the error is cut. An unreachable machine would be ended."""
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with pytest.raises(LoginRefused):
        SshProbe().measure("127.0.0.1", server.port, str(folder / "none"), download=False)


def test_no_client_on_this_machine_is_no_fault_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(LoginRefused, match="cannot run"):
        SshProbe(client=str(tmp_path / "none")).measure("127.0.0.1", 22, "key", download=False)


def test_nobody_there_is_no_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(InstanceUnreachable, match="refused"):
        SshProbe().measure("127.0.0.1", port, str(_other_key(tmp_path)), download=False)


def _stand_in_client(folder: Path, script: str) -> str:
    client = folder / "stand-in-for-ssh"
    client.write_text(f"#!/bin/sh\n{script}\n")
    client.chmod(0o755)
    return str(client)


def test_a_host_that_never_ends_is_cut_off(tmp_path: Path) -> None:
    """Its children end with it."""
    pid_file = tmp_path / "pid"
    client = _stand_in_client(tmp_path, f"sleep 300 & echo $! > {pid_file}; wait")
    for inside_s in (0.5, 5.0, 50.0):  # on a busy machine a shell may need more than half a second to report its child
        with pytest.raises(InstanceUnreachable, match=rf"within {inside_s:g} s"):
            SshProbe(client=client, measure_timeout_s=inside_s).measure("h", 22, "key", download=True)
        if pid_file.exists() and pid_file.read_text():
            break
    pid = int(pid_file.read_text())
    until = time.monotonic() + 30
    while _lives(pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_of_an_endless_answer_a_little_is_kept(tmp_path: Path) -> None:
    probe = SshProbe(client=_stand_in_client(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' '\\n'; echo gpu,late, 1"))
    assert probe.measure("h", 22, "key", download=True) == MeasuredInstance()


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("", MeasuredInstance()),
        ("gpu,No devices were found\n", MeasuredInstance()),
        (f"gpu,{H100}, 81559\ngpu,{H100}, [N/A]\n", MeasuredInstance()),
        ("gpu,a, b, 81559\n", MeasuredInstance(gpus=(("a, b", 81_559.0),))),
        ("gpu,a\x1b[31m, 1\n", MeasuredInstance(gpus=(("a�[31m", 1.0),))),
        ("bps,200,1000000\nbps,200,2000000\nbps,403,9000000\n", MeasuredInstance(download_mbps=24.0)),
        ("bps,200,nan\nbps,200,-1\nbps,200,1e99\nbps\nbps,200\n", MeasuredInstance()),
        ("$(reboot)\n`reboot`\nbps,200,0\n", MeasuredInstance(download_mbps=0.0)),
    ],
)
def test_what_is_said_there_is_text(said: str, found: MeasuredInstance) -> None:
    assert parse_probe_output(said) == found
