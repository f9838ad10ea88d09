"""A command of the owner, as a real process: limited, isolated, and without our environment."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from gpuwatch.hooks.owner_command import CommandResult, run_command

SHELL = ("/bin/sh", "-c")


def ran(command: str, given: bytes = b"{}", timeout_s: float = 20.0, **env: str) -> CommandResult:
    found = run_command((*SHELL, command), given, env, timeout_s, threading.Event())
    return CommandResult(found.code, found.last_line)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def pids(path: Path) -> list[int]:
    """Return those recorded so far."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def wait_until_gone(found: list[int]) -> bool:
    ends_at = time.monotonic() + 30
    while any(map(alive, found)) and time.monotonic() < ends_at:
        time.sleep(0.02)
    return not any(map(alive, found))


def test_it_gets_the_launch_on_standard_input_and_its_name_in_the_environment(tmp_path: Path) -> None:
    got = ran(f"cat > {tmp_path}/got; echo $GPUWATCH_EVENT", b'{"a": 1}', GPUWATCH_EVENT="on_running")
    assert (got, (tmp_path / "got").read_text()) == (CommandResult(0, "on_running"), '{"a": 1}')


def test_a_large_input_that_nobody_reads_holds_nothing_up() -> None:
    assert ran("echo done", b"x" * 5_000_000) == CommandResult(0, "done")


def test_a_large_input_arrives_whole() -> None:
    assert ran("wc -c", b"x" * 5_000_000).last_line == "5000000"


def test_no_secret_of_ours_is_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAST_API_KEY", "s3cretkey")
    monkeypatch.setenv("GPUWATCH_DATABASE_URL", "postgresql://u:p@h/d")
    assert ran("env | grep -c -e s3cretkey -e postgresql").last_line == "0"
    assert ran("echo $PATH").last_line == os.environ["PATH"]


def test_the_exit_code_and_the_last_line_are_known_of_both_outputs() -> None:
    assert ran("echo one; echo; echo 'no space' >&2; echo; exit 3") == CommandResult(3, "no space")


def test_endless_output_is_read_away_and_only_its_end_kept() -> None:
    got = ran("yes 0123456789 | head -c 3000000; echo; echo end")
    assert got == CommandResult(0, "end")


def test_output_that_is_no_text_is_no_error() -> None:
    assert ran("printf '\\377\\376x'").last_line.endswith("x")


def test_when_its_time_is_over_it_is_killed_with_its_children(tmp_path: Path) -> None:
    """Also a child that ignores SIGTERM."""
    script = (
        f"trap '' TERM; echo $$ > {tmp_path}/pids; (trap '' TERM; sleep 300) & echo $! >> {tmp_path}/pids; sleep 300"
    )
    for timeout_s in (1.0, 5.0, 25.0):  # on a busy machine one second may not be enough
        assert ran(script, timeout_s=timeout_s).code is None
        found = pids(tmp_path / "pids")
        assert wait_until_gone(found)
        if len(found) == 2:
            return
    pytest.fail("it never started its child")


def test_what_it_leaves_behind_does_not_hold_it_up_and_is_killed(tmp_path: Path) -> None:
    began = time.monotonic()
    assert ran(f"sleep 300 & echo $! > {tmp_path}/pids; echo fine", timeout_s=120.0) == CommandResult(0, "fine")
    assert time.monotonic() - began < 100
    assert wait_until_gone(pids(tmp_path / "pids"))


def test_a_talkative_leftover_does_not_hold_it_up() -> None:
    assert ran("yes & exit 0", timeout_s=60.0).code == 0


def test_closed_pipes_are_not_its_end() -> None:
    assert ran("exec <&- >&- 2>&-; sleep 1; exit 4").code == 4


def test_our_own_end_ends_it(tmp_path: Path) -> None:
    stopping, written = threading.Event(), tmp_path / "pids"

    def stop_once_it_runs() -> None:
        while not (written.exists() and written.read_text()):
            time.sleep(0.02)
        stopping.set()

    stopper = threading.Thread(target=stop_once_it_runs, daemon=True)
    stopper.start()
    assert run_command((*SHELL, f"echo $$ > {written}; sleep 300"), b"", {}, 200.0, stopping).code is None
    assert stopping.is_set()
    stopper.join()
    assert wait_until_gone(pids(written))


def test_a_hundred_commands_leave_no_open_file() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        ran("true")
    assert len(os.listdir("/proc/self/fd")) <= before
