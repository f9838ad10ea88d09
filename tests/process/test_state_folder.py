"""A state folder that cannot be written: refused at a start, before anything is polled; reported by doctor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.emulator import Marketplace
from gpuwatch.errors import StoreError
from gpuwatch.storage.launches.obligation_file import FILE_NAME, ObligationFile
from tests.conftest import Postgres
from tests.process.daemon_child import Home


@pytest.mark.slow
def test_a_daemon_refuses_it_in_one_line_and_doctor_names_it(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.upgraded()
    (tmp_path / "file").touch()
    with Marketplace(seed=3, key="demo-key", size=2) as market:
        home = Home(tmp_path, market.url, database_url=url)
        home.env["STATE_DIRECTORY"] = str(tmp_path / "file" / "gpuwatch")  # below a file, so that root fails, too
        refused = home.run("run")
        assert refused.returncode == 1
        (line,) = [line for line in refused.stderr.splitlines() if not line.startswith('{"at"')]  # of warnings
        assert f"cannot write the state folder {tmp_path}/file/gpuwatch: Not a directory" in line
        assert "set STATE_DIRECTORY or XDG_STATE_HOME" in line
        assert not market.requests
        doctor = home.run("doctor")
        line = next(line for line in doctor.stdout.splitlines() if "state folder" in line)
        assert line.startswith("FAULT")
        assert "cannot write" in line
    postgres.give_back(url)


def test_a_folder_that_a_start_creates_is_no_fault_and_nothing_is_left_there(tmp_path: Path) -> None:
    ObligationFile(tmp_path / "new" / "gpuwatch" / FILE_NAME, real_now).require_writable()
    assert not list(tmp_path.iterdir())
    ObligationFile(tmp_path / FILE_NAME, real_now).require_writable()
    assert not list(tmp_path.iterdir())


def test_a_file_or_folder_without_permission_is_refused(tmp_path: Path) -> None:
    file = ObligationFile(tmp_path / "state" / FILE_NAME, real_now)
    (tmp_path / "state").symlink_to("/proc/self/fdinfo" if os.geteuid() == 0 else "/usr")  # not writable for anyone
    with pytest.raises(StoreError, match="cannot write the state folder"):
        file.require_writable()
