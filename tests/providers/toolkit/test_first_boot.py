"""The first script of a virtual machine, run by a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuwatch.providers.toolkit.first_boot import first_boot_script


def _run(script: str | None, home: Path) -> str:
    assert script is not None
    here = script.replace("/etc/", f"{home}/").replace("/root", str(home))
    done = subprocess.run(["bash", "-c", here], capture_output=True, text=True, timeout=240, check=False)
    assert done.stderr == ""
    return done.stdout


def test_start_commands_get_the_environment_whatever_it_holds(tmp_path: Path) -> None:
    hostile = "a'b\"c $HOME `id` \\ END\nEND"
    assert _run(first_boot_script('printf %s "$TOLD"', {"TOLD": hostile}), tmp_path) == hostile


def test_the_first_line_of_the_start_commands_names_their_interpreter(tmp_path: Path) -> None:
    onstart = "#!/usr/bin/env python3\nimport os\nprint(os.environ['A'] + 'é')"
    assert _run(first_boot_script(onstart, {"A": "1"}), tmp_path) == "1é\n"


@pytest.mark.parametrize("onstart", [None, "true"])
def test_the_environment_is_left_in_a_file_for_root_alone(tmp_path: Path, onstart: str | None) -> None:
    _run(first_boot_script(onstart, {"A": "x y"}), tmp_path)
    kept = tmp_path / "gpuwatch.env"
    assert kept.read_text() == "export A='x y'\n"
    assert kept.stat().st_mode & 0o777 == 0o600


def test_nothing_to_say_is_no_script() -> None:
    assert first_boot_script(None, {}) is None
