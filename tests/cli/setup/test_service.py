"""`gpuwatch service`, with a systemctl, a loginctl and a journalctl of the test on PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuwatch import __version__
from gpuwatch.app.setup.maintenance import systemd_unit
from gpuwatch.app.setup.maintenance.systemd_unit import Scope, run_command, unit_text
from gpuwatch.cli import Exit
from gpuwatch.domain.launches.launch import Intent, LaunchState
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.daemon_lease import claim_daemon
from gpuwatch.storage.setup.database import open_database
from tests.builders import a_match, a_watch, an_offer
from tests.cli.conftest import Shell
from tests.reserving import launch_or_refusal

NOW = datetime(2026, 11, 29, 6, tzinfo=UTC)
SHOWN = f"""\
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
ActiveEnterTimestamp=Sun 2026-11-29 06:00:00 UTC
StatusText=gpuwatch {__version__}: 3 watches; vastai polled 2 s ago
"""
FAKE = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "{calls}"
case "$*" in
*{failing}*) echo "Job for gpuwatch.service failed." >&2; exit 1 ;;
*"show gpuwatch.service"*) cat "{shown}" ;;
*"show gpuwatch-keep.timer"*) printf 'ActiveState=active\nSubState=waiting\n' ;;
*--property=Linger*) echo {linger} ;;
*"-p err"*) echo "2026-11-29T05:00:00+0000 host gpuwatch[7]: vast.ai is not answering" ;;
esac
"""


class Systemd:
    """Programs that record how they are called."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "shown").write_text(SHOWN)
        self.answer()

    def answer(self, *, failing: str = "nothing at all", linger: str = "yes", shown: str = SHOWN) -> None:
        (self._folder / "shown").write_text(shown)
        values = {"calls": self._folder / "calls", "shown": self._folder / "shown", "linger": linger}
        for name in ("systemctl", "loginctl", "journalctl"):
            program = self._folder / name
            program.write_text(FAKE.format(**values, failing=f'"{failing}"'))
            program.chmod(0o755)

    def calls(self) -> list[str]:
        """What changes something, since the start."""
        path = self._folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [
            line.replace(" --no-pager", "") for line in lines if " show" not in line and line.startswith("systemctl")
        ]


@pytest.fixture
def systemd(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    made = Systemd(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for name in [name for name in os.environ if name.startswith("GPUWATCH_")]:
        monkeypatch.delenv(name)
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    return made


@pytest.fixture
def unit(systemd: Systemd, shell: Shell) -> Path:
    """Where a user's unit lies; XDG_CONFIG_HOME is this folder."""
    return shell.folder / "home/systemd/user/gpuwatch.service"


@pytest.fixture
def system(systemd: Systemd, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Root, with the system's folders in a folder of the test, and a program outside home folders."""
    etc = shell.folder / "etc"
    monkeypatch.setattr(systemd_unit, "SYSTEM_UNITS", etc / "systemd")
    monkeypatch.setattr(systemd_unit, "SYSTEM_SETTINGS", etc / "gpuwatch/gpuwatch.toml")
    monkeypatch.setattr(systemd_unit, "SYSTEM_STATE", shell.folder / "state")
    monkeypatch.setattr(systemd_unit, "_HOMES", ())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (etc / "gpuwatch").mkdir(parents=True)
    (etc / "gpuwatch/gpuwatch.toml").write_text("dry_run = true\n")
    return etc


# --- install ----------------------------------------------------------------------------------------------------------


def test_a_user_s_unit_runs_this_program_here_with_these_settings(shell: Shell, systemd: Systemd, unit: Path) -> None:
    ran = shell("service", "install", "--user")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    text = unit.read_text()
    program = " ".join(run_command(Scope.USER, shell.folder / "gpuwatch.toml"))
    assert f"\nExecStart={program}\nWorkingDirectory={shell.folder}\n" in text
    assert f"Environment=XDG_STATE_HOME={shell.folder}/home" in text
    assert text.endswith("[Install]\nWantedBy=default.target\n")
    assert "DynamicUser" not in text
    assert "Only as a system service" not in text
    assert systemd.calls() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now gpuwatch-keep.timer",
        "systemctl --user enable gpuwatch.service",
        "systemctl --user restart gpuwatch.service",
    ]
    assert (unit.stat().st_mode & 0o777) == 0o644
    keep = unit.with_name("gpuwatch-keep.service").read_text()
    program = " ".join(run_command(Scope.USER, shell.folder / "gpuwatch.toml", "keep"))
    assert f"\nExecStart={program}\nWorkingDirectory={shell.folder}\n" in keep
    assert "DynamicUser" not in keep
    assert unit.with_name("gpuwatch-keep.timer").read_text().endswith("[Install]\nWantedBy=timers.target\n")


def test_what_only_this_shell_sets_is_named(
    shell: Shell, systemd: Systemd, unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is exported, and nowhere else, would leave the daemon unable to rent."""
    monkeypatch.setenv("VAST_API_KEY", "canary")
    monkeypatch.setenv("GPUWATCH_DRY_RUN", "true")
    (shell.folder / ".env").write_text("GPUWATCH_DRY_RUN=true\n")
    ran = shell("service", "install", "--user")
    assert "VAST_API_KEY; move them to .env in this folder" in ran.err
    assert "DRY_RUN" not in ran.err
    assert "canary" not in ran.out + ran.err + unit.read_text()


def test_a_user_s_service_that_ends_with_the_session_says_what_keeps_it(
    shell: Shell, systemd: Systemd, unit: Path
) -> None:
    systemd.answer(linger="no")
    ran = shell("service", "install", "--user")
    assert "loginctl enable-linger " in ran.err
    assert "loginctl enable-linger " in shell("service", "status", "--user").out


def test_the_system_s_unit_is_that_of_the_servers(shell: Shell, systemd: Systemd, system: Path) -> None:
    ran = shell("service", "install")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    source = (systemd_unit.packaged_path("deploy/gpuwatch.service") or Path()).read_text()
    here = " ".join(run_command(Scope.SYSTEM, None))
    assert (system / "systemd/gpuwatch.service").read_text() == source.replace(
        "/opt/gpuwatch/current/bin/gpuwatch run", here
    )
    assert (system / "gpuwatch/credentials").stat().st_mode & 0o777 == 0o700
    assert systemd.calls()[-1] == "systemctl restart gpuwatch.service"


def test_what_cannot_work_is_refused_in_one_line_and_changes_nothing(
    shell: Shell, systemd: Systemd, unit: Path, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (system / "gpuwatch/gpuwatch.toml").unlink()
    refused = [(shell("service", "install", "--system"), "there is no settings file", Exit.USAGE)]
    (system / "gpuwatch/gpuwatch.toml").write_text("dry_run = true\n")
    monkeypatch.setattr(systemd_unit, "_HOMES", (Path("/"),))
    refused.append((shell("service", "install", "--system"), "lies in a home folder", Exit.USAGE))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    refused.append((shell("service", "status", "--system"), "run it with sudo, or use --user", Exit.USAGE))
    with claim_daemon(f"sqlite:///{shell.folder}/gpuwatch.db"):
        refused.append((shell("service", "install"), "a daemon (process", Exit.FAILED))
    shell.settings("max_prise = 1\n")
    refused.append((shell("service", "install"), "max_prise", Exit.USAGE))
    for ran, text, code in refused:
        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran
        assert text in ran.err
    assert not unit.exists()
    assert not (system / "systemd").exists()
    assert systemd.calls() == []


@pytest.mark.parametrize("command", ["install", "status", "uninstall"])
def test_without_systemd_it_is_one_line(
    shell: Shell, systemd: Systemd, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    systemd.answer(failing="--property=Version")
    ran = shell("service", command, "--user")
    assert (ran.code, ran.err.count("\n")) == (Exit.FAILED, 1)
    assert "the systemd of this user does not answer" in ran.err
    monkeypatch.setenv("PATH", "/nowhere")
    ran = shell("service", command, "--user")
    assert (ran.code, ran.err.count("\n")) == (Exit.FAILED, 1)
    assert "there is no systemd here" in ran.err


def test_a_start_that_fails_names_the_journal(shell: Shell, systemd: Systemd, unit: Path) -> None:
    systemd.answer(failing="restart gpuwatch.service")
    ran = shell("service", "install", "--user")
    assert ran.code == Exit.FAILED
    assert "Job for gpuwatch.service failed.; see: journalctl --user -u gpuwatch" in ran.err


def test_names_with_a_meaning_for_systemd_stay_what_they_are(tmp_path: Path) -> None:
    text = unit_text(Scope.USER, ["/a b/gpuwatch", "run", "--config", '/100%/$x"y'], Path("/a %b"), {})
    assert '\nExecStart="/a b/gpuwatch" run --config "/100%%/$$x\\"y"\nWorkingDirectory=/a %%b\n' in text


def test_a_link_named_current_outlives_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0.2.0/bin").mkdir(parents=True)
    (tmp_path / "0.2.0/bin/gpuwatch").touch()
    (tmp_path / "current").symlink_to("0.2.0")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "0.2.0"))
    assert run_command(Scope.USER, None) == [str(tmp_path / "current/bin/gpuwatch"), "run"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze; on Debian: systemd")
@pytest.mark.parametrize("scope", Scope)
def test_systemd_understands_the_unit(shell: Shell, systemd: Systemd, system: Path, scope: Scope) -> None:
    printed = shell("service", "install", f"--{scope.value}", "--print")
    assert printed.code == Exit.DONE
    path = shell.folder / "gpuwatch.service"
    path.write_text(printed.out)
    verified = _analyze("verify", "--man=no", *(["--user"] if scope is Scope.USER else []), str(path))
    about_it = [line for line in verified.stderr.splitlines() if "gpuwatch" in line]
    assert about_it == []
    if scope is Scope.SYSTEM:
        rated = _analyze("security", "--offline=true", "--threshold=12", str(path))
        assert rated.returncode == 0, rated.stdout


def _analyze(*words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.defpath, "XDG_RUNTIME_DIR": "/tmp", "HOME": "/tmp"}
    return subprocess.run(
        ["/usr/bin/systemd-analyze", *words], env=env, capture_output=True, text=True, timeout=240, check=False
    )


# --- status and uninstall ---------------------------------------------------------------------------------------------


def test_status_is_one_screen(shell: Shell, systemd: Systemd, unit: Path) -> None:
    shell("service", "install", "--user")
    ran = shell("service", "status", "--user")
    assert ran.code == Exit.DONE
    assert ran.out.splitlines() == [
        f"unit       {unit}",
        "enabled    enabled",
        "active     active (running) since Sun 2026-11-29 06:00:00 UTC",
        "doing      3 watches; vastai polled 2 s ago",
        f"version    {__version__}",
        "reaper     active (waiting)",
        "last error 2026-11-29T05:00:00+0000 host gpuwatch[7]: vast.ai is not answering",
    ]


def test_status_says_what_differs(shell: Shell, systemd: Systemd, unit: Path) -> None:
    shell("service", "install", "--user")
    unit.write_text(unit.read_text().replace("MemoryMax=512M", "MemoryMax=1M"))
    systemd.answer(shown=SHOWN.replace(__version__, "0.1.9").replace("=active", "=failed"))
    ran = shell("service", "status", "--user")
    assert ran.code == Exit.FAILED
    assert f"{unit}; this version writes another one here: gpuwatch service install --user" in ran.out
    shell("service", "install", "--user")
    unit.with_name("gpuwatch-keep.timer").unlink()  # as a version before this one left it
    assert "this version writes another one here" in shell("service", "status", "--user").out
    assert f"version    0.1.9; this command is {__version__}" in ran.out
    unit.unlink()
    assert "is not installed; to install it: gpuwatch service install" in shell("service", "status", "--user").out


def test_uninstall_removes_the_unit_alone(shell: Shell, systemd: Systemd, unit: Path) -> None:
    shell("service", "install", "--user")
    ran = shell("service", "uninstall", "--user")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    assert list(unit.parent.iterdir()) == []
    assert (shell.folder / "gpuwatch.toml").exists()
    assert systemd.calls()[-3:] == [
        "systemctl --user disable --now gpuwatch.service",
        "systemctl --user disable --now gpuwatch-keep.timer",
        "systemctl --user daemon-reload",
    ]
    again = shell("service", "uninstall", "--user")
    assert (again.code, "is not installed" in again.err) == (Exit.USAGE, True)


def test_uninstall_names_what_nothing_would_guard(
    shell: Shell, systemd: Systemd, unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("service", "install", "--user")
    _rented(f"sqlite:///{shell.new_store()}")
    refused = shell("service", "uninstall", "--user")
    assert refused.code == Exit.USAGE
    assert "1 launch would no longer be followed, nor ended by its max_runtime, price or budget:" in refused.err
    assert "abcdefghijkl  1× H100 SXM at vastai, instance 7, $" in refused.err
    assert "repeat it with --yes" in refused.err
    assert unit.exists()
    _on_a_terminal(monkeypatch, lambda: False)
    assert shell("service", "uninstall", "--user").code == Exit.FAILED
    assert unit.exists()
    assert shell("service", "uninstall", "--user", "--yes").code == Exit.DONE
    assert not unit.exists()


def test_uninstall_asks_too_if_it_cannot_tell(shell: Shell, systemd: Systemd, unit: Path) -> None:
    shell("service", "install", "--user")
    shell.settings("max_prise = 1\n")
    refused = shell("service", "uninstall", "--user")
    assert (refused.code, unit.exists()) == (Exit.USAGE, True)
    assert "cannot tell what is rented" in refused.err


def test_uninstall_with_other_settings_than_the_service_cannot_tell(
    shell: Shell, systemd: Systemd, unit: Path, tmp_path: Path
) -> None:
    """In another folder, the database would be another one, where nothing is rented."""
    shell("service", "install", "--user")
    _rented(f"sqlite:///{shell.new_store()}")
    other = tmp_path / "other.toml"
    other.write_text((shell.folder / "gpuwatch.toml").read_text().replace("gpuwatch.db", "other.db"))
    refused = shell("service", "uninstall", "--user", "--config", str(other))
    assert (refused.code, unit.exists()) == (Exit.USAGE, True)
    assert "the service has other settings than these: --config" in refused.err


def _on_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], bool]) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda *_args, **_named: answer())


def _rented(url: str) -> None:
    database = open_database(url)
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
    with database.write() as connection:
        intent = Intent(watch=watch, match=a_match(an_offer()), launch_id="abcdefghijkl", dry_run=False)
        launch = launch_or_refusal(connection, intent, Budget(), NOW)
    repository = SqlLaunchRepository(database)
    repository.transition(launch, LaunchState.STARTING, "created", NOW, instance_id="7")  # type: ignore[arg-type]
    database.close()
