"""Standard output that is full, closed, or no longer read: no traceback, no wrong exit code, no lost history."""

from __future__ import annotations

import errno
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.cli import is_unwritten
from gpuwatch.emulator import Marketplace
from tests.cli.conftest import Shell

FULL = Path("/dev/full")
UNWRITTEN = "gpuwatch: cannot write: [Errno 28] No space left on device"
MATCHES, MATCHES_NOT = "2.40", "1.00"
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")


def _run(argv: str, redirected: str) -> tuple[int, str]:
    """Return the exit code and the messages of `gpuwatch ARGV` in a shell."""
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m gpuwatch {argv} {redirected}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.fixture
def check(shell: Shell, market: Marketplace) -> str:
    shell.settings("")
    shell.new_store()
    market.publish(gpu="H100 SXM", count=1, usd_hour=1.5)
    return "check --gpu H100 --max-price "


@needs_full
@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize("argv", ["--help", "--version", "config show --json", "docs", "plan models"])
def test_a_full_disk_is_one_line(argv: str) -> None:
    code, messages = _run(argv, f">{FULL}")
    assert (code, messages.splitlines()[-1]) == (3, UNWRITTEN)
    assert "Traceback" not in messages


@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize("redirected", [">&-", "| true"])
@pytest.mark.parametrize("argv", ["--help", "--version", "config show --json", "docs", "plan models"])
def test_output_that_nobody_reads_is_no_failure(argv: str, redirected: str) -> None:
    code, messages = _run(argv, redirected)
    assert code == 0
    assert "Error" not in messages


@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize(("limit_usd", "code"), [(MATCHES, 0), (MATCHES_NOT, 1)])
@pytest.mark.parametrize("redirected", [">&-", "| true", "<&- >&- 2>&-"])
def test_a_check_that_nobody_reads_says_whether_something_matched(
    check: str, limit_usd: str, code: int, redirected: str
) -> None:
    assert _run(check + limit_usd, redirected)[0] == code


def test_another_error_of_the_system_is_not_taken_for_lost_output() -> None:
    assert is_unwritten(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert not is_unwritten(OSError(errno.ENOSPC, "No space left on device", "gpuwatch.db"))
    assert not is_unwritten(OSError(errno.EMFILE, "Too many open files"))


@needs_full
@pytest.mark.parametrize("option", ["", " --json"])
def test_a_check_whose_result_cannot_be_written_cannot_tell_and_is_stored(
    check: str, option: str, shell: Shell
) -> None:
    code, messages = _run(check + MATCHES + option, f">{FULL}")
    assert (code, messages.splitlines()[-1]) == (3, UNWRITTEN)
    with closing(sqlite3.connect(next(shell.folder.rglob("gpuwatch.db")))) as store:
        assert store.execute("SELECT count(*) FROM poll").fetchone()[0] == 1
