"""A watch that an agent adds: it alerts the owner or asks for approval, and never rents by itself.

Its name says whose idea it was, until the owner renames it: what such a watch asks for, the owner approves in any case.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gpuwatch.app.owner_audit import record_audit
from gpuwatch.app.watches.edit_watch import draft_watch, save_draft
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.owner_names import plain_name
from gpuwatch.errors import UsageError

_RUNTIME = "24h"  # of a launch that the owner approves, until the owner sets another
_PREFIX = "agent-"
_MOST_WATCHES = 20


def is_agents(watch: str) -> bool:
    """Whether an agent added the watch of this name, and the owner has not renamed it."""
    return plain_name(watch).startswith(_PREFIX)


def create_agent_watch(
    config: str | None, name: str, gpu: str, max_price: float, why: str, *, asks: bool
) -> dict[str, Any]:
    """Add it to the settings file; a daemon takes it at its next reload.

    Raises:
        UsageError: there are many already, or the file cannot be written.
        SettingsError: a value is invalid, or the name is taken; nothing was written.
        StoreError: it could not be recorded; nothing was written.
    """
    if sum(is_agents(watch.name) for watch in load_settings(config).watches) >= _MOST_WATCHES:
        raise UsageError(f"{_MOST_WATCHES} watches of agents exist: the owner must remove or rename some")
    name = name if is_agents(name) else f"{_PREFIX}{name}"
    values = {"name": name, "gpu": gpu, "max_price": f"{Decimal(repr(max_price)):f}", "action": "alert"}
    if asks:
        values |= {"action": "ask", "launch.max_runtime": _RUNTIME, "launch.max_total": "1"}
    draft = draft_watch(config, None, values)
    if not draft.is_writable:
        raise UsageError(f"{draft.file} cannot be written: the owner must add the watch")
    action = f"watch {draft.name} added: {clean(why, 200)}"
    record_audit(draft.settings, "agent (gpuwatch mcp)", action, subject=draft.name, watch=draft.name)
    save_draft(draft, draft.version)  # last: an agent changes nothing of which there is no record
    return {"watch": draft.name, "file": str(draft.file), "diff": draft.diff, "next": "the owner reloads the daemon"}
