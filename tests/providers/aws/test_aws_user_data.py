"""The script of a new machine's first boot; a real shell runs the parts that can run here."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.providers.aws.create import BYTES_MAX, exports, user_data
from gpuwatch.testing.suite import case

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NASTY = 'it\'s $HOME `id` \\ "quoted" \n second line; ü'


def _run(script: str, tmp_path: Path) -> str:
    """Run it with its files in a folder of the test."""
    for path in ("/etc", "/var"):
        script = script.replace(f" >{path}/", f" >{tmp_path}{path}/").replace(f"{path}/lib", f"{tmp_path}{path}/lib")
    script = script.replace(f"{tmp_path}{tmp_path}", str(tmp_path)).replace(
        "chmod 700 /var", f"chmod 700 {tmp_path}/var"
    )
    for folder in ("etc/profile.d", "etc/systemd/system", "var/lib/cloud"):
        (tmp_path / folder).mkdir(parents=True)
    done = subprocess.run(
        ["bash"], input=script, capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_to_do_is_no_script() -> None:
    assert user_data(None, {}, None, NOW) == ""


def test_the_environment_reaches_the_owners_script_and_login_shells(tmp_path: Path) -> None:
    script = user_data('printf "%s|%s" "$A" "$B"', {"A": NASTY, "B": ""}, None, NOW)
    assert _run(script, tmp_path) == f"{NASTY}|"
    login = (tmp_path / "etc/profile.d/gpuwatch.sh").read_text()
    done = subprocess.run(
        ["sh"], input=f'{login}printf %s "$A"', capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout == NASTY


def test_a_script_of_another_language_is_run_by_its_own_program(tmp_path: Path) -> None:
    script = user_data("#!/usr/bin/env python3\nimport os\nprint(os.environ['A'], 6 * 7)", {"A": "x"}, None, NOW)
    assert _run(script, tmp_path) == "x 42\n"


def test_it_is_a_shell_script_that_cloud_init_takes() -> None:
    script = user_data("echo hi", {"A": "b"}, NOW + timedelta(hours=1), NOW)
    assert script.startswith("#!/bin/bash\n")
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False, timeout=240).returncode == 0


def test_the_machine_ends_itself_by_the_hour_and_before_the_owners_script() -> None:
    script = user_data("echo hi", {}, datetime(2026, 11, 21, 15, 30, 1, tzinfo=UTC), NOW)
    assert "OnCalendar=2026-11-21 15:30:01 UTC\n" in script
    assert "shutdown -h +211\n" in script
    assert script.index("gpuwatch-end.timer") < script.index("gpuwatch-onstart")


def test_an_end_in_another_zone_is_the_same_end() -> None:
    zone = datetime.fromisoformat("2026-11-21T16:30:00+01:00")
    assert "OnCalendar=2026-11-21 15:30:00 UTC" in user_data(None, {}, zone, NOW)


def test_an_end_that_is_past_is_the_next_minute() -> None:
    assert "shutdown -h +1\n" in user_data(None, {}, NOW - timedelta(hours=1), NOW)


def test_what_cannot_be_written_is_refused() -> None:
    cases: list[Any] = [
        (None, {"A B": "x"}, "invalid name of an environment variable"),
        (None, {"A;reboot": "x"}, "invalid name of an environment variable"),
        (None, {"A": "x\0"}, "zero byte"),
        ("x" * BYTES_MAX, {}, f"EC2 accepts {BYTES_MAX}"),
        ("echo\nGPUWATCH_ONSTART_ENDS_HERE\nreboot", {}, "must not contain the line"),
        (None, {"A": "x\nGPUWATCH_ONSTART_ENDS_HERE\nreboot"}, "must not contain the line"),
    ]
    for script, env, words in cases:
        with case((script, env, words)), pytest.raises(ValueError, match=words):
            user_data(script, env, None, NOW)


def test_a_refusal_shows_no_value() -> None:
    with pytest.raises(ValueError, match="zero byte") as caught:
        exports({"TOKEN": "hush\0hush"})
    assert "hush" not in str(caught.value)
