"""Places where a crash test makes the process die: `GPUWATCH_FAILPOINT=launch.after_send` or `…:3` for the third pass.

Nothing happens unless the variable is set; a process that runs for a person never has it.
"""

from __future__ import annotations

import os

_passes: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Die here, without any clean-up, if the variable says so."""
    wanted = os.environ.get("GPUWATCH_FAILPOINT")
    if not wanted or wanted.partition(":")[0] != name:
        return
    _passes[name] = _passes.get(name, 0) + 1
    if _passes[name] >= int(wanted.partition(":")[2] or 1):
        os._exit(86)
