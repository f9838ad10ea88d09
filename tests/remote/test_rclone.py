"""What rclone prints about an error is shown without half of a key, wherever it is cut."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from gpuwatch.ports.remote import StoreUnreachable
from gpuwatch.redaction import register_secret
from gpuwatch.remote.bounded_process import _MAX_STDERR_BYTES
from gpuwatch.remote.rclone import Rclone

KEY = "Rq7-zW3.mB9_pX5+tR1vN8sD4"


def error_of(folder: Path, printed: str) -> str:
    """The error of a call to an rclone that prints this and fails."""
    program = folder / "rclone"
    program.write_text(f"#!/bin/sh\nprintf %s {shlex.quote(printed)} >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(StoreUnreachable) as caught:
        Rclone({"PATH": f"{folder}:{os.environ['PATH']}"}).read("s3://bucket/file", timeout_s=60.0)
    return str(caught.value)


@pytest.fixture(autouse=True)
def secret() -> None:
    register_secret(KEY)


@pytest.mark.parametrize("before", range(270, 300, 6))
def test_half_a_key_is_not_shown_where_the_line_is_cut(tmp_path: Path, before: int) -> None:
    error = error_of(tmp_path, f"{'y' * before} {KEY} and more")
    assert "yyy" in error
    assert KEY[:6] not in error


@pytest.mark.parametrize("kept", [len(KEY) - 3, 6])
def test_half_a_key_is_not_shown_where_the_beginning_of_the_output_is_lost(tmp_path: Path, kept: int) -> None:
    error = error_of(tmp_path, f"{KEY}{' y' * ((_MAX_STDERR_BYTES - kept) // 2)}")
    assert "y y" in error
    assert KEY[-6:] not in error
