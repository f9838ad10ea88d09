"""cloud-init's user data, which a new machine runs at its first boot. Pure; never logged, because it contains secrets.

The start script and every login shell get the environment. The machine can end itself: its shutdown terminates it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from gpuwatch.providers.toolkit.shutdown_timer import shutdown_timer

BYTES_MAX: Final = 16_384  # before base64. source: AWS's EC2 user guide, 2026
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_END: Final = "GPUWATCH_ONSTART_ENDS_HERE"
_ENV_FILE: Final = "/etc/profile.d/gpuwatch.sh"


def user_data(script: str | None, env: Mapping[str, str], ends_at: datetime | None, now: datetime) -> str:
    """Build a shell script for cloud-init; empty: there is nothing to do.

    Args:
        script: the owner's; a first line `#!…` names the program that runs it.
        ends_at: when the machine ends itself, timezone-aware; None: never.

    Raises:
        ValueError: it cannot be written; the text is a sentence for the owner.
    """
    parts = []
    if ends_at is not None:
        parts.append(shutdown_timer(ends_at, now))
    if env:
        parts.append(_environment(env))
    if script:
        parts.append(_onstart(script))
    combined = "".join(["#!/bin/bash\n", *parts]) if parts else ""
    size = len(combined.encode())
    if size > BYTES_MAX:
        raise ValueError(f"onstart and env need {size} bytes of user data; EC2 accepts {BYTES_MAX}")
    return combined


def exports(env: Mapping[str, str]) -> str:
    """Return shell lines that set these variables. Raises ValueError."""
    invalid = [name for name in env if not _NAME.fullmatch(name)]
    if invalid:
        raise ValueError(f"invalid name of an environment variable: {invalid[0][:40]!r}")
    if any("\0" in value for value in env.values()):
        raise ValueError("a value of env contains a zero byte")
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())


def _environment(env: Mapping[str, str]) -> str:
    lines = exports(env)
    return f"{lines}cat >{_ENV_FILE} <<'{_END}'\n{_delimited(lines)}{_END}\n"


def _onstart(script: str) -> str:
    path = "/var/lib/cloud/gpuwatch-onstart"
    text = script if script.startswith("#!") else f"#!/bin/bash\n{script}"
    text = text if text.endswith("\n") else f"{text}\n"
    return f"cat >{path} <<'{_END}'\n{_delimited(text)}{_END}\nchmod 700 {path}\n{path}\n"


def _delimited(text: str) -> str:
    if _END in text.splitlines():
        raise ValueError(f"onstart and env must not contain the line {_END}")
    return text
