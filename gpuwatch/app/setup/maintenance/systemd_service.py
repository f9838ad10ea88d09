"""gpuwatch as a systemd service: install it, say how it is, remove it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuwatch import __version__
from gpuwatch.app.launches.launches import all_launches
from gpuwatch.app.setup.maintenance import systemd_unit
from gpuwatch.app.setup.maintenance.systemd_unit import (
    KEEP,
    KEEP_TIMER,
    NAME,
    Scope,
    run_command,
    unit_path,
    unit_text,
)
from gpuwatch.atomic_file import atomic_file
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.errors import GpuwatchError, StoreMissing, UsageError
from gpuwatch.storage.setup.daemon_lease import claim_daemon

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_START_S = 16 * 60  # the unit's TimeoutStartSec, and a little
_ANSWER_S = 30
_SHOWN = "LoadState,ActiveState,SubState,UnitFileState,StatusText,ActiveEnterTimestamp,Result"
_RUNNING_VERSION = re.compile(r"gpuwatch (\S+): ?")  # begins the status that the daemon sends


class InstalledService(msgspec.Struct, frozen=True, kw_only=True):
    """A service that was installed and started.

    Attributes:
        linger: whether it outlives the user's sessions; None: a system service does.
        shell_only: variables of this shell that set something here, and that the service does not have.
    """

    unit: str
    command: str
    linger: bool | None
    shell_only: list[str]


class ServiceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the service is.

    Attributes:
        is_current: the units are what this version writes.
        enabled: systemd's word, such as "enabled".
        active: systemd's words, such as "active (running)".
        doing: the line of the daemon; empty: it sends none.
        version: of the daemon that runs; None: it does not, or is older than 0.2.
        program_version: of this program.
        linger: whether it outlives the user's sessions; None: a system service does.
        reaper: systemd's words for the timer of `gpuwatch keep`, such as "active (waiting)".
        last_error: the newest line of the journal with the priority "error"; None: there is none, or no journal.
    """

    unit: str
    is_installed: bool
    is_current: bool
    enabled: str
    active: str
    since: str
    doing: str
    version: str | None
    program_version: str
    linger: bool | None
    reaper: str
    last_error: str | None


class GuardedLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """What the service guards. `unknown`: why nobody knows; None: `launches` is complete."""

    launches: list[Launch]
    unknown: str | None = None


def default_scope() -> Scope:
    """A user's own service, and root's for the system."""
    return Scope.SYSTEM if os.geteuid() == 0 else Scope.USER


def service_text(scope: Scope, config: str | None) -> str:
    """The daemon's unit that `install_service` would write. Raises SettingsError, UsageError."""
    return _units(scope, _settings(scope, config))[NAME]


def install_service(scope: Scope, config: str | None) -> InstalledService:
    """Write the units, enable them, and start them with the settings that a daemon would have here.

    Raises:
        SettingsError: they are invalid.
        UsageError: there are none, a system service cannot see the program, or root is needed.
        StoreInUse: another daemon uses the database.
        GpuwatchError: there is no systemd, or it did not start.
    """
    settings = _settings(scope, config)
    texts = _units(scope, settings)
    _require_systemd(scope)
    path = unit_path(scope, os.environ)
    if scope is Scope.USER and not path.exists():
        with claim_daemon(settings.database_url):  # one that was started by hand
            pass
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if scope is Scope.SYSTEM:
            (systemd_unit.SYSTEM_SETTINGS.parent / "credentials").mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in texts.items():
            with atomic_file(path.with_name(name), mode=0o644) as part:
                part.write_text(text, "utf-8")
                part.chmod(0o644)
    except OSError as error:
        raise GpuwatchError(f"cannot write {path}: {error.strerror or error}") from error
    for words in (["daemon-reload"], ["enable", "--now", KEEP_TIMER], ["enable", NAME], ["restart", NAME]):
        done = _systemctl(scope, *words, within_s=_START_S)
        if done.returncode != 0:
            raise GpuwatchError(f"systemctl {' '.join(words)}: {_last_line(done)}; see: {_journal_hint(scope)}")
    command = next(line for line in texts[NAME].splitlines() if line.startswith("ExecStart="))
    return InstalledService(
        unit=str(path),
        command=command.partition("=")[2],
        linger=_lingers(scope),
        shell_only=_of_this_shell(scope, os.environ),
    )


def service_status(scope: Scope, config: str | None) -> ServiceStatus:
    """How the service is. Raises GpuwatchError: there is no systemd."""
    _require_systemd(scope)
    path = unit_path(scope, os.environ)
    facts, timer = _facts(scope, NAME), _facts(scope, KEEP_TIMER)
    doing = facts.get("StatusText", "")
    found = _RUNNING_VERSION.match(doing)
    return ServiceStatus(
        unit=str(path),
        is_installed=path.exists(),
        is_current=path.exists() and _is_current(scope, config),
        enabled=facts.get("UnitFileState") or "no",
        active=_state(facts),
        since=facts.get("ActiveEnterTimestamp", ""),
        doing=doing[found.end() :] if found else doing,
        version=found[1] if found else None,
        program_version=__version__,
        linger=_lingers(scope),
        reaper=_state(timer),
        last_error=_last_error(scope),
    )


def guarded_launches(scope: Scope, config: str | None) -> GuardedLaunches:
    """The launches that the installed service follows and ends: alive, not dry.

    Raises:
        UsageError: it is not installed.
        GpuwatchError: there is no systemd.
    """
    _require_systemd(scope)
    if not (path := unit_path(scope, os.environ)).exists():
        raise UsageError(f"{path} is not installed")
    try:
        settings = _settings(scope, config)
        if (others := _place(path.read_text("utf-8", "replace"))) != _place(_units(scope, settings)[NAME]):
            return GuardedLaunches(launches=[], unknown=f"the service has other settings than these: {others}")
        found = all_launches(settings)
    except StoreMissing:
        return GuardedLaunches(launches=[])
    except GpuwatchError as error:
        return GuardedLaunches(launches=[], unknown=str(error).splitlines()[0])
    return GuardedLaunches(launches=[launch for launch in found if not launch.is_over and not launch.dry_run])


def uninstall_service(scope: Scope) -> str:
    """Stop and disable the service and its timer, and remove their units. Returns the path of the service's unit.

    Raises:
        GpuwatchError: systemd did not stop one; its unit is still there.
    """
    path = unit_path(scope, os.environ)
    timer = [KEEP_TIMER] if path.with_name(KEEP_TIMER).exists() else []  # an older gpuwatch installed none
    for name in (NAME, *timer):
        done = _systemctl(scope, "disable", "--now", name, within_s=_START_S)
        if done.returncode != 0:
            raise GpuwatchError(f"systemctl disable --now {name}: {_last_line(done)}")
    try:
        path.unlink()
        for name in (KEEP, KEEP_TIMER):
            path.with_name(name).unlink(missing_ok=True)
    except OSError as error:
        raise GpuwatchError(f"cannot remove {error.filename}: {error.strerror}") from error
    _systemctl(scope, "daemon-reload")
    return str(path)


# --- settings and unit ------------------------------------------------------------------------------------------------


def _settings(scope: Scope, config: str | None) -> Settings:
    """The settings that the service has. Raises SettingsError; UsageError: the file is missing."""
    if scope is Scope.USER:
        settings = load_settings(config)
    else:
        from gpuwatch.settings import load  # noqa: PLC0415

        file = systemd_unit.SYSTEM_SETTINGS
        named = config and os.path.abspath(config)
        settings = load(named or (str(file) if file.exists() else None), env=_service_env(os.environ), cwd=Path("/"))
    if settings.source_file is None:
        where = "" if scope is Scope.USER else f" --config {systemd_unit.SYSTEM_SETTINGS}"
        raise UsageError(f"there is no settings file; write one first: gpuwatch init{where}")
    return settings


def _service_env(env: Mapping[str, str]) -> dict[str, str]:
    """What a system service has of an environment: its folder, and the credential that names the database."""
    url = systemd_unit.SYSTEM_SETTINGS.parent / "credentials/database_url"
    found = {"STATE_DIRECTORY": str(systemd_unit.SYSTEM_STATE), "PATH": env.get("PATH", os.defpath)}
    return found | ({"GPUWATCH_DATABASE_URL_FILE": str(url)} if url.exists() else {})


def _units(scope: Scope, settings: Settings) -> dict[str, str]:
    """The units by name: the daemon's, and those of `gpuwatch keep`."""
    file = Path(settings.source_file or "")
    folder = None if scope is Scope.SYSTEM else Path.cwd()
    is_default = scope is Scope.SYSTEM and file == systemd_unit.SYSTEM_SETTINGS
    config = None if is_default else (folder or Path()) / file
    commands = {NAME: "run", KEEP: "keep", KEEP_TIMER: "keep"}
    return {
        name: unit_text(scope, run_command(scope, config, command), folder, os.environ, name)
        for name, command in commands.items()
    }


def _place(unit: str) -> str:
    """What says which settings a unit has: the arguments of `gpuwatch run`, and the folder."""
    lines = unit.splitlines()
    arguments = next((line.rpartition(" run")[2] for line in lines if line.startswith("ExecStart=")), "")
    folder = next((line for line in lines if line.startswith("WorkingDirectory=")), "")
    return f"{arguments} {folder}".strip()


def _of_this_shell(scope: Scope, env: Mapping[str, str]) -> list[str]:
    """The variables that set something in this shell alone: not in `.env`, which a user's service reads, too."""
    from gpuwatch.settings.external_values import read_dotenv  # noqa: PLC0415
    from gpuwatch.settings.plugin_options import PREFIX, key_aliases  # noqa: PLC0415

    known = key_aliases()
    kept = read_dotenv(Path.cwd()) if scope is Scope.USER else {}
    named = [name for name in env if name.startswith(PREFIX) or name in known]
    return sorted(name for name in named if kept.get(name) != env[name] and name != f"{PREFIX}CONFIG")


def _is_current(scope: Scope, config: str | None) -> bool:
    """Whether every unit is there, as this version writes it."""
    try:
        texts = _units(scope, _settings(scope, config))
    except GpuwatchError:
        return False
    paths = {name: unit_path(scope, os.environ, name) for name in texts}
    return all(paths[name].exists() and paths[name].read_text("utf-8", "replace") == texts[name] for name in texts)


# --- systemd ----------------------------------------------------------------------------------------------------------


def _require_systemd(scope: Scope) -> None:
    """Raise GpuwatchError, one line, unless the service manager answers; UsageError: it is root's."""
    if scope is Scope.SYSTEM and os.geteuid() != 0:
        raise UsageError("a system service is root's: run it with sudo, or use --user")
    instead = "run `gpuwatch run` by another supervisor, or in a container (docs/container.md)"
    if shutil.which("systemctl") is None:
        raise GpuwatchError(f"there is no systemd here: {instead}")
    done = _systemctl(scope, "show", "--property=Version")
    if done.returncode == 0:
        return
    if scope is Scope.USER:
        log_in = "log in as this user, not by su or sudo"
        raise GpuwatchError(f"the systemd of this user does not answer ({_last_line(done)}): {log_in}; or {instead}")
    raise GpuwatchError(f"systemd does not answer ({_last_line(done)}): {instead}")


def _facts(scope: Scope, unit: str) -> dict[str, str]:
    shown = _systemctl(scope, "show", unit, f"--property={_SHOWN}")
    return dict(line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)


def _state(facts: Mapping[str, str]) -> str:
    return f"{facts.get('ActiveState', 'unknown')} ({facts.get('SubState', 'unknown')})"


def _systemctl(scope: Scope, *words: str, within_s: float = _ANSWER_S) -> subprocess.CompletedProcess[str]:
    manager = ["--user"] if scope is Scope.USER else []
    return _ran(["systemctl", *manager, "--no-pager", *words], within_s)


def _ran(command: list[str], within_s: float = _ANSWER_S) -> subprocess.CompletedProcess[str]:
    """Run a program of systemd; one that cannot run, or does not end, counts as failed."""
    try:
        return subprocess.run(  # noqa: S603 fixed words
            command, capture_output=True, text=True, errors="replace", timeout=within_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return next(iter((done.stderr or done.stdout).strip().splitlines()[::-1]), f"exit code {done.returncode}")


def _lingers(scope: Scope) -> bool | None:
    """Whether this user's services run without a session; None: a system service, or unknown."""
    if scope is Scope.SYSTEM:
        return None
    done = _ran(["loginctl", "show-user", user_name(), "--property=Linger", "--value"])
    return {"yes": True, "no": False}.get(done.stdout.strip())


def user_name() -> str:
    """This user's name, or its number in a container without one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _journal_hint(scope: Scope) -> str:
    return "journalctl --user -u gpuwatch" if scope is Scope.USER else "journalctl -u gpuwatch"


def _last_error(scope: Scope) -> str | None:
    manager = ["--user"] if scope is Scope.USER else []
    words = ["-u", NAME, "-p", "err", "-n", "1", "-q", "-o", "short-iso", "--no-pager"]
    lines = _ran(["journalctl", *manager, *words]).stdout.strip().splitlines()
    return lines[-1] if lines else None
