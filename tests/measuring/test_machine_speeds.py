"""The speed of a disk and of a download, by a clock that is played."""

from __future__ import annotations

import threading
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from itertools import count
from pathlib import Path

import pytest

from gpuwatch.measuring.machine_speeds import disk_speed, download_mbps
from gpuwatch.ports.measuring import CannotMeasure


def test_a_disk_is_written_and_read_and_nothing_is_left(tmp_path: Path) -> None:
    ticks = count()
    found = disk_speed(tmp_path, megabytes=8, seconds=lambda: float(next(ticks)))  # each part takes a second
    assert found == pytest.approx((4.194304, 4.194304))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CannotMeasure, match="cannot write to"):
        disk_speed(tmp_path / "missing")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_a_download_is_timed_from_its_answer_on_and_other_schemes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 3_000_000)
    ticks = count()
    with HTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/large"
        found = download_mbps(url, within_s=60, seconds=lambda: float(next(ticks)))
        thread.join()
    assert 0 < found <= 24
    for address in ("file:///etc/passwd", "http://127.0.0.1:9/"):
        with pytest.raises(CannotMeasure):
            download_mbps(address, within_s=2)
