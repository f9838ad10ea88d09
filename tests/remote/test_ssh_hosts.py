"""Machines as hosts of the owner's own OpenSSH client, with a real server."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.emulator.instances.machine_sshd import MachineSshd
from gpuwatch.ports.remote import RemoteRefused
from gpuwatch.remote.launch_keys import LaunchKeyFiles
from gpuwatch.remote.ssh import OpenSshShells
from gpuwatch.remote.ssh_hosts import SshHost, SshHosts, become
from tests.builders import a_watch, changed
from tests.domain.launches.test_launch import a_running

ID = "b" * 12


@pytest.fixture
def host(machine: MachineSshd, tmp_path: Path) -> SshHost:
    """The machine, which lets in a key in a folder whose name needs quotes."""
    folder = tmp_path / 'my "100%" keys'
    folder.mkdir()
    key = folder / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    machine.authorize(key.with_suffix(".pub").read_text().strip())
    address = SshAddress(host="127.0.0.1", port=machine.port, user=machine.user)
    return SshHost(launch_id=ID, names=("gpuwatch-cheap", f"gpuwatch-{ID}"), address=address, key_file=str(key))


@pytest.fixture
def hosts(tmp_path: Path) -> SshHosts:
    return SshHosts(tmp_path / 'the "5%" store')


def ran(argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a client whose owner has no settings of their own."""
    argv = [argv[0], "-o", "BatchMode=yes", *argv[1:]]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)


def test_a_command_runs_there_and_its_exit_code_comes_back(hosts: SshHosts, host: SshHost) -> None:
    found = ran(hosts.command(host, ["echo", "ok;", "exit", "7"]))
    assert (found.returncode, found.stdout) == (7, "ok\n"), found.stderr


def test_the_first_host_key_is_pinned_and_another_one_refused(hosts: SshHosts, host: SshHost, tmp_path: Path) -> None:
    """The pin is of the launch: another launch at the same address has its own."""
    assert ran(hosts.command(host, ["true"])).returncode == 0
    keys = LaunchKeyFiles(hosts.file.parent)
    assert keys.known_hosts(ID).read_text().startswith(f"gpuwatch-{ID} ssh-ed25519 ")
    keys.pin(ID, OpenSshShells(tmp_path / "other").public_key("c" * 12).rsplit(" ", 1)[0])
    refused = ran(hosts.command(host, ["echo", "reached"]))
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "Host key verification failed" in refused.stderr
    assert ran(hosts.command(msgspec.structs.replace(host, launch_id="c" * 12), ["true"])).returncode == 0


def test_a_port_of_the_machine_is_forwarded(hosts: SshHosts, host: SshHost) -> None:
    with answering() as remote_port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            local_port = probe.getsockname()[1]
        forward = ("-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{local_port}:127.0.0.1:{remote_port}")
        client = subprocess.Popen(hosts.command(host, ["echo up; cat"], forward), stdin=-1, stdout=-1)
        with client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"up\n"  # the port is open before the command runs
            with socket.create_connection(("127.0.0.1", local_port), timeout=60) as connection:
                assert connection.recv(5) == b"hello"
            assert client.stdin is not None
            client.stdin.close()


def test_the_file_of_hosts_serves_plain_ssh_until_the_launch_ends(hosts: SshHosts, host: SshHost) -> None:
    launch = changed(a_running(), launch_id=ID, watch="cheap", ssh=host.address)
    watch = a_watch(name="cheap", launch=LaunchSpec(ssh_key=host.key_file))
    assert [one.names for one in hosts.write([launch], {"cheap": watch})] == [host.names]
    assert hosts.file.stat().st_mode & 0o777 == 0o600
    assert (hosts.file.parent / ID).stat().st_mode & 0o777 == 0o700
    for name in host.names:
        found = ran(["ssh", "-F", str(hosts.file), name, "echo by name"])
        assert found.stdout == "by name\n", found.stderr
    assert "ForwardAgent no" in hosts.file.read_text()
    hosts.write([launch], {"cheap": watch})
    assert "StrictHostKeyChecking yes" in hosts.file.read_text()
    written = hosts.file.stat()
    hosts.write([launch], {"cheap": watch})
    assert hosts.file.stat().st_ino == written.st_ino  # an editor that watches it is left in peace
    outbid = changed(launch, ssh=None)
    assert hosts.write([outbid], {"cheap": watch}) == []
    assert LaunchKeyFiles(hosts.file.parent).known_hosts(ID).exists()  # it may come back
    hosts.write([], {})
    assert "Host " not in hosts.file.read_text()
    assert not (hosts.file.parent / ID).exists()


def test_an_address_from_an_altered_row_is_not_written(hosts: SshHosts, host: SshHost) -> None:
    for address in ("-oProxyCommand=id", "a\nProxyCommand id"):
        with pytest.raises(RemoteRefused):
            hosts.command(msgspec.structs.replace(host, address=SshAddress(host=address, port=22)))


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RemoteRefused, match=r"cannot run ssh .*apt install openssh-client"):
        become(["ssh", "-V"])
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN  # a socket that its peer closed would end the process


@contextmanager
def answering() -> Iterator[int]:
    """A server on the machine's loopback that says hello."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"hello")

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)
