"""Login shells that print text: what a command prints is found all the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from gpuwatch.domain.jobs.run_status import RunPhase
from gpuwatch.domain.launches.instance import SshAddress
from gpuwatch.emulator.instances.machine_sshd import MachineSshd
from gpuwatch.ports.remote import RemoteRefused
from gpuwatch.remote.framed_output import FramedOutput, framed
from gpuwatch.remote.ssh import OpenSshShell, OpenSshShells
from tests.remote.conftest import RunOnMachine

NOISES = {
    "a line": "echo 'Welcome to GPU cloud'",
    "no end of line": "printf 'Last login: today'",
    "colours and NULs": r"printf '\033[1;32mready\033[0m\000\000\n'",
    "a page": "i=0; while [ $i -lt 2000 ]; do echo 'terms of service'; i=$((i+1)); done",
    "at the end": "trap 'echo logout' EXIT",
    "errors": "echo 'stdin: is not a tty' >&2",
    "a marker of its own": r"printf '\ngpuwatch-0123456789abcdef begin\ngpuwatch-runner=1\n'",
}


@pytest.fixture(params=NOISES)
def noisy(request: pytest.FixtureRequest, machine: MachineSshd) -> Iterator[None]:
    settings = machine.folder / "etc/environment"
    settings.write_text(NOISES[request.param] + "\n")
    yield
    settings.unlink()


@pytest.mark.usefixtures("noisy")
def test_output_exit_code_and_input_are_those_of_the_command(shell: OpenSshShell) -> None:
    answer = shell.run("cat; printf ' end'; exit 5", timeout_s=30, stdin=b"given")
    assert (answer.exit_code, answer.stdout) == (5, b"given end")


@pytest.mark.usefixtures("noisy")
def test_a_file_is_read_without_the_text(shell: OpenSshShell, machine: MachineSshd) -> None:
    (machine.home / "file").write_bytes(bytes(range(256)) * 1000)
    into = BytesIO()
    assert shell.read("tail -c +1 file", into, timeout_s=30, max_bytes=256_000) == 256_000
    assert into.getvalue() == bytes(range(256)) * 1000


@pytest.mark.usefixtures("noisy")
def test_a_folder_is_sent(shell: OpenSshShell, machine: MachineSshd, tmp_path: Path) -> None:
    """rsync does not work through such a shell."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.txt").write_text("content")
    shell.send(tmp_path / "data", "noisy target", timeout_s=60)
    assert (machine.home / "noisy target/a.txt").read_text() == "content"


@pytest.mark.usefixtures("noisy")
def test_a_run_is_followed_to_its_end(run: RunOnMachine) -> None:
    run.prepare("echo out; exit 3\n")
    run.start()
    status = run.ended()
    assert (status.phase, status.exit_code, status.log) == (RunPhase.ENDED, 3, b"out\n")


def test_a_shell_that_runs_no_command_is_named_with_what_it_prints(machine: MachineSshd, shell: OpenSshShell) -> None:
    """Waiting does not help, and the owner must know why."""
    settings = machine.folder / "etc/environment"
    settings.write_text("echo 'This account is currently not available.'; exit 1\n")
    try:
        with pytest.raises(
            RemoteRefused, match=r"runs no command; it prints: This account is currently not available\."
        ):
            shell.run("true", timeout_s=30)
    finally:
        settings.unlink()


def test_a_shell_that_prints_without_end_is_named_too(machine: MachineSshd, shell: OpenSshShell) -> None:
    settings = machine.folder / "etc/environment"
    settings.write_text("yes 'accept the terms'\n")
    try:
        with pytest.raises(RemoteRefused, match="it prints: accept the terms"):
            shell.run("true", timeout_s=30)
    finally:
        settings.unlink()


def test_the_shell_of_the_command_is_sh_whatever_the_login_shell_is(
    machine: MachineSshd, shells: OpenSshShells, address: SshAddress
) -> None:
    """A command uses what sh has, and no words of another shell."""
    shell = shells.open("launch", address, shells.host_key(address))
    assert shell.run('x="a  b"; set -- $x; echo $#', timeout_s=30).stdout == b"2\n"


@pytest.mark.parametrize("size", [1, 2, 7, 64, 100_000])
def test_markers_are_found_wherever_the_parts_are_cut(size: int) -> None:
    output = BytesIO()
    found = FramedOutput(output, "m", 1000)
    said = b"noise\nm begin\n\nm en\x00d body\nm end 7\nlogout\n"
    for at in range(0, len(said), size):
        found.write(said[at : at + size])
    found.finish()
    assert (output.getvalue(), found.exit_code, found.noise) == (b"\nm en\x00d body", 7, b"noise")


def test_an_output_that_is_cut_off_is_kept_as_far_as_it_came() -> None:
    output = BytesIO()
    found = FramedOutput(output, "m", 1000)
    found.write(b"m begin\n12345\nm e")
    found.finish()
    assert (output.getvalue(), found.exit_code, found.received) == (b"12345\nm e", None, 9)


def test_the_framed_command_is_one_word_for_any_login_shell() -> None:
    """Quotes, dollars and line breaks of the command reach sh as they are."""
    command = "printf '%s|' \"$HOME x\" 'it'\\''s' `echo y`"
    said = os.popen(framed(command, "m")).read()
    assert said == f"\nm begin\n{os.environ['HOME']} x|it's|y|\nm end 0\n"
