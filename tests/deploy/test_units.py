"""The units in deploy/, checked by systemd itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checkout import ROOT

DEPLOY = ROOT / "deploy"
SERVICES = sorted(DEPLOY.glob("*.service"))
UNITS = sorted([*SERVICES, *DEPLOY.glob("*.timer")])
THRESHOLD = 12  # in tenths: with free outbound network, 1.1 is the floor of systemd 252
TARGETS = (
    "basic.target", "multi-user.target", "network-online.target", "shutdown.target", "sysinit.target", "timers.target",
    "time-sync.target", "paths.target", "slices.target", "sockets.target",
)  # fmt: skip

wants_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None and "CI" not in os.environ,
    reason="no systemd-analyze; on Debian: apt-get install systemd",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root folder with the units, stubs of the programs they start, and the standard targets."""
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    for unit in UNITS:
        shutil.copyfile(unit, units / unit.name)
    for target in TARGETS:
        (units / target).write_text(f"[Unit]\nDescription={target}\n")
    for program in ("opt/gpuwatch/current/bin/gpuwatch", "bin/kill"):
        stub = tmp_path / program
        stub.parent.mkdir(parents=True)
        stub.write_text("#!/bin/sh\n")
        stub.chmod(0o755)
    return tmp_path


def _analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=240, check=False)


def _verify(root: Path, unit: str) -> subprocess.CompletedProcess[str]:
    return _analyze("verify", "--man=no", f"--root={root}", unit)


@wants_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_understands_every_line(root: Path, unit: Path) -> None:
    done = _verify(root, unit.name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@wants_systemd
def test_a_misspelt_line_would_be_found(root: Path) -> None:
    unit = root / "etc/systemd/system/gpuwatch.service"
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSecs="))
    assert "Unknown key" in _verify(root, unit.name).stderr


@wants_systemd
@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_what_a_service_may_touch_stays_small(root: Path, unit: Path) -> None:
    done = _analyze("security", "--offline=true", f"--threshold={THRESHOLD}", f"--root={root}", unit.name)
    assert done.returncode == 0, done.stdout


@wants_systemd
def test_a_service_that_may_touch_more_would_be_found(root: Path) -> None:
    unit = root / "etc/systemd/system/gpuwatch.service"
    unit.write_text(re.sub(r"(?m)^(Protect|Private).*\n", "", unit.read_text()))
    assert _analyze("security", "--offline=true", f"--threshold={THRESHOLD}", f"--root={root}", unit.name).returncode


def _values(unit: str, key: str) -> list[str]:
    return re.findall(rf"(?m)^{key}=(.*)$", (DEPLOY / unit).read_text())


def test_settings_that_are_wrong_are_not_tried_again() -> None:
    assert _values("gpuwatch.service", "RestartPreventExitStatus") == ["2"]


def test_the_daemon_is_never_given_up() -> None:
    """It destroys its instances at the end of their time: a service that systemd gave up would leave them running."""
    assert _values("gpuwatch.service", "StartLimitIntervalSec") == ["0"]
    assert _values("gpuwatch.service", "Restart") == ["on-failure"]


def test_a_check_that_found_nothing_is_no_failure_but_one_that_cannot_tell_is() -> None:
    assert _values("gpuwatch-check.service", "SuccessExitStatus") == ["1"]


def test_a_reload_is_the_signal_that_reads_the_settings_again() -> None:
    assert _values("gpuwatch.service", "ExecReload") == ["/bin/kill -HUP $MAINPID"]


def test_all_services_share_one_user_state_and_secrets() -> None:
    for key in ("DynamicUser", "User", "StateDirectory", "LoadCredential"):
        every = [_values(service.name, key) for service in SERVICES]
        assert every == [_values("gpuwatch.service", key)] * len(SERVICES) != [[]] * len(SERVICES)


def test_no_service_holds_a_secret_itself() -> None:
    for service in SERVICES:
        assert not re.search(r"(?m)^(Environment|SetCredential)\w*=", service.read_text())
