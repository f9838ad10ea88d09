"""What a rented virtual machine runs: its first-boot script, and shell lines that end it at a set time.

The first-boot script sets its environment and runs its start commands; cloud-init runs it once, as root. A machine
shuts itself down without a key; what it costs afterwards differs by provider.
"""

from __future__ import annotations

import re
import shlex
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Final

from gpuwatch.domain.market.json_view import rfc3339

ENV_FILE: Final = "/etc/gpuwatch.env"  # lines of `export NAME='value'`, readable only by root
SCRIPT_FILE: Final = "/root/gpuwatch-onstart"
# The timer survives a reboot; without systemd, the timer of `shutdown` applies. A timer whose time has passed at the
# first boot would never fire.
_LINES: Final = """\
# this machine ends itself at {when}
cat >/etc/systemd/system/gpuwatch-end.service <<'EOF'
[Service]
Type=oneshot
ExecStart=/sbin/shutdown -h now
EOF
cat >/etc/systemd/system/gpuwatch-end.timer <<'EOF'
[Timer]
OnCalendar={calendar}
Persistent=true
AccuracySec=1s
[Install]
WantedBy=timers.target
EOF
systemctl daemon-reload && systemctl enable --now gpuwatch-end.timer || shutdown -h +{minutes}
[ "$(date +%s)" -lt {epoch} ] || shutdown -h now
"""


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


def shutdown_timer(ends_at: datetime, now: datetime) -> str:
    """Return shell lines that make a machine shut itself down; they run as root.

    Args:
        ends_at: the end, timezone-aware.
    """
    remaining_s = max((ends_at - now).total_seconds(), 0.0)
    at = ends_at.astimezone(UTC)
    return _LINES.format(
        when=rfc3339(at),
        calendar=at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        minutes=max(1, ceil(remaining_s / 60)),
        epoch=int(at.timestamp()),
    )


def with_end(lines: str, at: datetime, now: datetime) -> str:
    """Fill in an end: @WHEN@ (for people), @END@ (Unix seconds) and @LEFT@ (seconds from now)."""
    values = {
        "WHEN": rfc3339(at),
        "END": str(ceil(at.timestamp())),
        "LEFT": str(max(0, ceil((at - now).total_seconds()))),
    }
    return re.sub("@([A-Z]+)@", lambda found: values[found[1]], lines)
