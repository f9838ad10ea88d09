"""Shell lines that end a machine at a set time; a virtual machine shuts itself down without a key.

What a machine costs after its shutdown differs by provider.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import ceil
from typing import Final

from gpuwatch.domain.market.money import rfc3339

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
