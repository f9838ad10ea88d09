"""`gpuwatch config completion`: completes commands, watches, GPUs, providers and launches; errors stay silent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.cli.commands import ALIASES
from tests.cli.conftest import Shell

SETTINGS = """
[[watch]]
name = "h100-night"
gpu = ["H100"]
max_price = 3.5

[[watch]]
name = "a100"
gpu = ["A100"]
max_price = 1.5
"""


def completed(shell: Shell, *words: str, kind: str = "bash") -> list[str]:
    """Return the completions of the last word."""
    env = os.environ | {
        "_GPUWATCH_COMPLETE": f"{kind}_complete",
        "COMP_WORDS": " ".join(("gpuwatch", *words)),
        "COMP_CWORD": str(len(words)),
    }
    ran = subprocess.run(
        [sys.executable, "-m", "gpuwatch"],
        cwd=shell.folder, env=env, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ran.stderr == ""
    return [line.partition(",")[2] for line in ran.stdout.split()]


def test_commands_are_completed_without_importing_them(shell: Shell) -> None:
    assert completed(shell, "c") == ["check", "config"]
    assert completed(shell, "plan", "s") == ["size", "scenario"]
    assert completed(shell, "store", "") == ["import", "export", "upgrade", "downgrade", "backup", "prune", "stats"]


def test_former_names_are_not_offered_and_complete_their_arguments(shell: Shell) -> None:
    offered = completed(shell, "")
    assert len(offered) <= 26
    assert not set(offered) & set(ALIASES)
    shell.settings(SETTINGS)
    assert completed(shell, "rehearse", "h") == completed(shell, "watches", "rehearse", "h") == ["h100-night"]
    assert completed(shell, "launches", "st") == ["stop", "start"]
    assert "--all" in completed(shell, "launches", "--")


def test_watches_come_from_the_settings(shell: Shell) -> None:
    shell.settings(SETTINGS)
    assert completed(shell, "check", "") == ["h100-night", "a100"]
    assert completed(shell, "pause", "h") == ["h100-night"]


JOB = """
command = "true"
resources = { gpu = "A100", disk_gb = 20 }
limit = { max_price = 2.0 }
"""


def test_a_checklist_is_a_watch_s_or_a_job_s(shell: Shell) -> None:
    shell.settings(SETTINGS)
    assert completed(shell, "checklist", "show", "") == ["h100-night", "a100"]
    (shell.folder / "train.toml").write_text(JOB)
    shell.new_store()
    assert shell("job", "submit", "train.toml").code == 0
    assert completed(shell, "checklist", "show", "")[-1] == "job:train"


def test_gpus_and_providers_are_those_that_are_known(shell: Shell) -> None:
    assert "H100-SXM" in completed(shell, "history", "h100")
    assert shell("history", "H100-SXM").code == shell("history", "H100 SXM").code
    assert completed(shell, "offers", "--provider", "vas") == ["vastai"]


def test_broken_settings_or_no_store_complete_nothing(shell: Shell) -> None:
    shell.settings("this is no TOML")
    assert completed(shell, "check", "") == []
    assert completed(shell, "stop", "") == []


def test_an_unknown_shell_is_a_usage_error(shell: Shell) -> None:
    assert shell("completion", "tcsh").code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_with_the_script(shell: Shell) -> None:
    shell.settings(SETTINGS)
    script = (
        'eval "$(gpuwatch config completion bash)"; COMP_WORDS=(gpuwatch check h); COMP_CWORD=2; '
        '_gpuwatch_completion gpuwatch; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=shell.folder, env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert (ran.stdout, ran.stderr) == ("h100-night\n", "")


@pytest.mark.parametrize(("kind", "mark"), [("zsh", "#compdef gpuwatch"), ("fish", "complete --no-files")])
def test_the_other_shells_get_their_script(shell: Shell, kind: str, mark: str) -> None:
    ran = shell("completion", kind)
    assert ran.code == 0
    assert mark in ran.out


def test_without_a_shell_it_lists_those_that_it_knows(shell: Shell) -> None:
    ran = shell("completion")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("Choose from: bash, zsh, fish. See: gpuwatch completion --help\n")
