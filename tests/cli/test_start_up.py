"""Answers that need no settings start without what reads settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.emulator import Marketplace
from tests.upgraded_store import empty_file


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
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout
    assert done.stderr.strip() == "[]"


_HEAVY = (  # what the page, metrics, alerts, statistics and extras need
    "alembic apprise boto3 duckdb jinja2 matplotlib multipart numpy prometheus_client pyarrow starlette tomlkit uvicorn"
)
_CHECK = """
import atexit, runpy, sys
heavy = sys.argv.pop(1).split()
@atexit.register
def loaded(): print("loaded:", sorted(set(heavy) & set(sys.modules)), file=sys.stderr)
runpy.run_module("gpuwatch", run_name="__main__", alter_sys=True)
"""


def test_a_check_loads_nothing_of_the_page_of_metrics_or_of_statistics(market: Marketplace, tmp_path: Path) -> None:
    """They are part of every installation; whoever runs a check from a timer does not pay for them."""
    market.publish(gpu="H100 SXM", count=1, usd_hour=1.0)
    (tmp_path / "gpuwatch.db").write_bytes(empty_file())
    env = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "GPUWATCH_PROVIDERS__VASTAI__BASE_URL": market.url,
        "GPUWATCH_DATABASE_URL": f"sqlite:///{tmp_path}/gpuwatch.db", "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    words = ["check", "--gpu", "H100", "--max-price", "2"]
    command = [sys.executable, "-c", _CHECK, _HEAVY, *words]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "loaded: []"
