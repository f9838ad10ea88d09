"""The text of gpuwatch's systemd units for this installation, from the files that servers install, too."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path

from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.home_folder import home_folder, xdg_folder
from gpuwatch.installation import packaged_path

NAME = "gpuwatch.service"
KEEP, KEEP_TIMER = "gpuwatch-keep.service", "gpuwatch-keep.timer"  # end what is overdue if the daemon does not
SYSTEM_UNITS = Path("/etc/systemd/system")
SYSTEM_SETTINGS = Path("/etc/gpuwatch/gpuwatch.toml")
SYSTEM_STATE = Path("/var/lib/gpuwatch")
_ONLY_SYSTEM = "# Only as a system service:"
_HOMES = tuple(map(Path, ("/home", "/root", "/run/user")))  # what ProtectHome= hides


class Scope(Enum):
    """Whose service manager runs the unit."""

    USER = "user"
    SYSTEM = "system"


def unit_path(scope: Scope, env: Mapping[str, str], name: str = NAME) -> Path:
    """Where a unit lies. source: systemd.unit(5). Raises UsageError: this user has no home folder."""
    if scope is Scope.SYSTEM:
        return SYSTEM_UNITS / name
    home = home_folder(env)
    config = xdg_folder(env, "XDG_CONFIG_HOME") or (home and home / ".config")
    if config is None:
        raise UsageError("this user has no home folder: set HOME, or use --system")
    return config / "systemd/user" / name


def unit_text(
    scope: Scope, command: Sequence[str], folder: Path | None, env: Mapping[str, str], name: str = NAME
) -> str:
    """A unit.

    Args:
        command: what it runs.
        folder: in which it runs; None: systemd's default.
        env: of this process; a user's service gets the folders that its variables name.
    """
    source = packaged_path(f"deploy/{name}")
    if source is None:
        raise GpuwatchError(f"{name} is missing from this installation; reinstall gpuwatch")
    parts = source.read_text("utf-8").split("\n\n")
    if scope is Scope.USER:
        parts = [part for part in parts if not part.startswith(_ONLY_SYSTEM)]
    text = "\n\n".join(parts)
    start = [f"ExecStart={' '.join(_word(word).replace('$', '$$') for word in command)}"]
    start += [] if folder is None else [f"WorkingDirectory={_escaped(str(folder))}"]
    if scope is Scope.USER:
        text = text.replace("WantedBy=multi-user.target", "WantedBy=default.target")
        named = [name for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME") if env.get(name)]
        start += [f"Environment={_word(f'{name}={env[name]}')}" for name in named]
    return re.sub(r"(?m)^ExecStart=.*$", lambda _: "\n".join(start), text)


def run_command(scope: Scope, config: Path | None, command: str = "run") -> list[str]:
    """The program of this installation, with a command and its arguments.

    Raises:
        UsageError: a system service cannot see it.
    """
    program = _program(Path(sys.prefix))
    real = Path(os.path.realpath(sys.executable))
    hidden = next((path for path in (Path(program[0]), real) for home in _HOMES if path.is_relative_to(home)), None)
    if scope is Scope.SYSTEM and hidden is not None:
        raise UsageError(
            f"a system service cannot see {hidden}, which lies in a home folder: install gpuwatch with deploy/install, "
            "or use --user"
        )
    return [*program, command, *([] if config is None else ["--config", str(config)])]


def _program(prefix: Path) -> list[str]:
    """The command of an environment; by the link `current` beside it, if deploy/install made one."""
    current = prefix.parent / "current"
    if current.is_symlink() and current.resolve() == prefix.resolve():
        prefix = current
    program = prefix / "bin/gpuwatch"
    return [str(program)] if program.exists() else [sys.executable, "-m", "gpuwatch"]


def _word(text: str) -> str:
    """One word of a line, as systemd reads it. source: systemd.service(5), "Command lines"."""
    text = _escaped(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"' if re.search(r"[\s\"';]", text) or not text else text


def _escaped(text: str) -> str:
    """Without meaning for systemd's specifiers, such as %h."""
    return text.replace("%", "%%")
