"""The cost of the page: nothing before it is started, and no numpy before past prices are requested."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import gpuwatch.web

STATIC = Path(gpuwatch.web.__file__).parent / "static"


def loaded(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_commands_load_nothing_of_it() -> None:
    assert not loaded("gpuwatch.cli") & {"starlette", "uvicorn", "jinja2", "gpuwatch.web"}


def test_a_daemon_without_the_page_loads_no_web_framework() -> None:
    assert not loaded("gpuwatch.web.serving, gpuwatch.daemon.process") & {"starlette", "uvicorn", "jinja2"}


def test_the_server_loads_no_numpy_before_somebody_asks() -> None:
    found = loaded("gpuwatch.web.server, gpuwatch.web.page as p; p.pages()")
    assert "uvicorn" in found
    assert "numpy" not in found


def test_what_is_vendored_is_what_was_published() -> None:
    """Its licence is beside it."""
    folder = STATIC / "vendor" / "uplot"
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert "MIT" in (folder / "LICENSE").read_text()
