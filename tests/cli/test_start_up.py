"""Answers that need no settings start without what reads settings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("words", ["--version", "--help", "check --help", "completion of config"])
def test_answers_without_settings_load_no_pydantic(words: str) -> None:
    """It and its settings take two hundred milliseconds, at every key press of a completion."""
    completes = words.startswith("completion")
    env = {"_GPUWATCH_COMPLETE": "bash_complete", "COMP_WORDS": "gpuwatch conf", "COMP_CWORD": "1"} if completes else {}
    program = (
        "import atexit, runpy, sys\n"
        "@atexit.register\n"
        "def loaded(): print([name for name in sys.modules if name.startswith('pydantic')], file=sys.stderr)\n"
        "runpy.run_module('gpuwatch', run_name='__main__', alter_sys=True)"
    )
    command = [sys.executable, "-c", program, *([] if completes else words.split())]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout
    assert done.stderr.strip() == "[]"
