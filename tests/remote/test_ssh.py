"""The shell over OpenSSH with a real server: limited, pinned, and independent of a machine's output."""

from __future__ import annotations

import os
import time
from io import BytesIO
from pathlib import Path
from pwd import getpwuid

import pytest

from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.emulator.instances.machine_sshd import MachineSshd
from gpuwatch.ports.remote import RemoteRefused, RemoteUnreachable
from gpuwatch.redaction import register_secret
from gpuwatch.remote.ssh import OpenSshShell, OpenSshShells, parse_host_keys


def test_a_command_runs_and_reads_its_input(shell: OpenSshShell) -> None:
    """Exit code, output and error output come back."""
    answer = shell.run("cat; echo oops >&2; exit 5", timeout_s=30, stdin=b"given")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (5, b"given", "oops")


def test_half_a_key_is_not_shown_where_the_error_output_is_cut(shell: OpenSshShell) -> None:
    key = "Sq7-zW3.mB9_pX5+tR1vN8sD4"
    register_secret(key)
    answer = shell.run(f"echo {'y' * 290} {key} >&2", timeout_s=30)
    assert "yyy" in answer.stderr
    assert key[:6] not in answer.stderr


def test_the_login_shell_reads_the_machines_start_up_files_and_not_the_real_users(
    machine: MachineSshd, shell: OpenSshShell
) -> None:
    """Its contents may take seconds, and change the effect of a command."""
    if Path(getpwuid(os.getuid()).pw_shell).name != "bash":
        pytest.skip("another shell has files of other names")
    (machine.home / ".bashrc").write_text('echo "$HOME" > "$HOME/read"\n')
    try:
        assert shell.run("cat read", timeout_s=30).stdout.decode().strip() == str(machine.home)
    finally:
        (machine.home / ".bashrc").unlink()


def test_another_host_key_is_refused(machine: MachineSshd, address: SshAddress, tmp_path: Path) -> None:
    """The server at the address is now another machine."""
    mine = OpenSshShells(tmp_path)
    machine.authorize(mine.public_key("launch"))
    other = mine.public_key("another").rsplit(" ", 1)[0]
    with pytest.raises(RemoteRefused, match="its host key"):
        mine.open("launch", address, other).run("true", timeout_s=30)


def test_a_key_that_is_not_let_in_is_refused_below_a_long_banner(
    shell: OpenSshShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is unreachable would be waited for."""
    says = f"echo {'Welcome ' * 60} >&2; echo 'root@host: Permission denied (publickey).' >&2; exit 255"
    monkeypatch.setattr(shell, "_client", ["sh", "-c", says])
    with pytest.raises(RemoteRefused):
        shell.run("true", timeout_s=30)


def test_a_key_that_is_not_let_in_is_refused(address: SshAddress, shells: OpenSshShells, tmp_path: Path) -> None:
    """Waiting does not help."""
    with pytest.raises(RemoteRefused, match="Permission denied"):
        OpenSshShells(tmp_path).open("launch", address, shells.host_key(address)).run("true", timeout_s=30)


def test_a_call_ends_in_time(shell: OpenSshShell) -> None:
    """A command that hangs counts as unreachable, and is not waited for."""
    before = time.monotonic()
    with pytest.raises(RemoteUnreachable, match="no answer within 1 s"):
        shell.run("sleep 600", timeout_s=1)
    assert time.monotonic() - before < 300


def test_an_endless_answer_is_cut(shell: OpenSshShell) -> None:
    """Output beyond the limit is dropped."""
    answer = shell.run("yes", timeout_s=60, max_bytes=1000)
    assert answer.is_truncated
    assert len(answer.stdout) == 1000


def test_part_of_a_transfer_counts(shell: OpenSshShell) -> None:
    """Output before the timeout is kept: the next call continues after it."""
    into = BytesIO()
    assert shell.read("printf 12345; sleep 600", into, timeout_s=4, max_bytes=100) == 5
    assert into.getvalue() == b"12345"


def test_nobody_listens_there(machine: MachineSshd, shells: OpenSshShells, address: SshAddress) -> None:
    """A refused connection is worth a retry."""
    key = shells.host_key(address)
    machine.disconnect()
    try:
        with pytest.raises(RemoteUnreachable):
            shells.open("launch", address, key).run("true", timeout_s=30)
        with pytest.raises(RemoteUnreachable):
            shells.host_key(address)
    finally:
        machine.start()


@pytest.mark.parametrize("has_rsync", [True, False])
def test_a_folder_is_sent(shell: OpenSshShell, machine: MachineSshd, tmp_path: Path, has_rsync: bool) -> None:
    """With rsync if the machine has it, else as an archive; repeating it changes nothing."""
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/deep/a b.bin").write_bytes(bytes(range(256)) * 50)
    target = "with rsync" if has_rsync else "with tar"
    if not has_rsync:
        machine.override_program("rsync", "exit 127")
    try:
        for _ in range(2):
            shell.send(tmp_path / "data", target, timeout_s=60)
    finally:
        (machine.folder / "bin/rsync").unlink(missing_ok=True)
    assert (machine.home / target / "deep/a b.bin").read_bytes() == bytes(range(256)) * 50


@pytest.mark.parametrize(
    ("host", "port", "user"),
    [("-oProxyCommand=id", 22, "root"), ("a b", 22, "root"), ("host", 0, "root"), ("host", 22, "-l")],
)
def test_an_address_cannot_become_an_option(shells: OpenSshShells, host: str, port: int, user: str) -> None:
    """The provider's list is not trusted."""
    with pytest.raises(RemoteUnreachable, match="no valid address"):
        shells.open("launch", SshAddress(host=host, port=port, user=user), "ssh-ed25519 AAAA")


def test_a_key_pair_is_made_once_and_forgotten(shells: OpenSshShells, tmp_path: Path) -> None:
    """One per launch, readable by its owner alone."""
    made = OpenSshShells(tmp_path)
    key = made.public_key("abc")
    assert made.public_key("abc") == key != made.public_key("def")
    assert (tmp_path / "abc/id_ed25519").stat().st_mode & 0o77 == 0
    made.delete_keys("abc")
    assert not (tmp_path / "abc").exists()


def test_what_is_no_key_is_not_pinned() -> None:
    """A scanner's output is foreign text."""
    good = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGisy3+vb2C5GbNN+3lGDX/qUTIzt8rZPk/ZP+4T1Q4M"
    said = f"# comment\nhost ssh-ed25519 notakey\nhost ssh-foo AAAA\n[h]:1 {good}\nhost ssh-rsa AAAAC3NzaC1lZDI1NTE5\n"
    assert parse_host_keys(said) == [good]
