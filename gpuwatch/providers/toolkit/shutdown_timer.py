"""Lines of shell by which a machine ends itself at a set time; a virtual machine shuts itself down with nobody's key.

What a machine that is shut down still costs differs by provider.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import ceil
from typing import Final

# The timer outlives a reboot; where there is no systemd, shutdown's own does. A timer whose moment is past at the first
# boot would never fire.
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
    """Lines of shell for root that make a machine shut itself down.

    Args:
        ends_at: the moment, aware.
    """
    left_s = max((ends_at - now).total_seconds(), 0.0)
    at = ends_at.astimezone(UTC)
    return _LINES.format(
        when=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        calendar=at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        minutes=max(1, ceil(left_s / 60)),
        epoch=int(at.timestamp()),
    )


def with_end(lines: str, at: datetime, now: datetime) -> str:
    """Lines with @WHEN@ (for people), @END@ (Unix seconds) and @LEFT@ (seconds from now) of an end filled in."""
    values = {
        "WHEN": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "END": str(ceil(at.timestamp())),
        "LEFT": str(max(0, ceil((at - now).total_seconds()))),
    }
    return re.sub("@([A-Z]+)@", lambda found: values[found[1]], lines)
