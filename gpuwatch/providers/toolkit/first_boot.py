"""The first-boot script of a rented virtual machine: its environment and its start commands.

For providers that start machines and not containers; cloud-init runs it once, as root.
"""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Mapping
from typing import Final

ENV_FILE: Final = "/etc/gpuwatch.env"  # lines of `export NAME='value'`, readable only by root
SCRIPT_FILE: Final = "/root/gpuwatch-onstart"


def first_boot_script(onstart: str | None, env: Mapping[str, str]) -> str | None:
    """Return a script for bash; None: there is nothing to run and no variable to set.

    `ENV_FILE` holds the variables. `onstart` runs with them, from its own file: with the interpreter of its first line,
    else as a bash script. Quotes in its text cannot end another quote.

    Args:
        env: names are letters, digits and `_`, as the settings have checked.
    """
    if not onstart and not env:
        return None
    lines = ["#!/bin/bash", "umask 077", *_file(ENV_FILE, "".join(map(_export, env, env.values())))]
    lines += ["export HOME=/root", "cd /root", f". {ENV_FILE}"]
    if onstart:
        lines += [*_file(SCRIPT_FILE, onstart), f"chmod 700 {SCRIPT_FILE}", f"exec /bin/bash -c {SCRIPT_FILE}"]
    return "\n".join(lines) + "\n"


def _export(name: str, value: str) -> str:
    return f"export {name}={shlex.quote(value)}\n"


def _file(path: str, text: str) -> list[str]:
    return [f"base64 -d >{path} <<'END'", b64encode(text.encode()).decode(), "END"]
