"""A watch that an agent adds: it alerts the owner or asks for approval, and never rents by itself."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gpuwatch.app.owner_audit import record_audit
from gpuwatch.app.watches.edit_watch import draft_watch, save_draft
from gpuwatch.domain.market.offer import clean
from gpuwatch.errors import UsageError

_RUNTIME = "24h"  # of a launch that the owner approves, until the owner sets another


def create_agent_watch(
    config: str | None, name: str, gpu: str, max_price: float, why: str, *, asks: bool
) -> dict[str, Any]:
    """Add it to the settings file; a daemon takes it at its next reload.

    Raises:
        UsageError: the name is taken, or the file cannot be written.
        SettingsError: a value is invalid; nothing was written.
    """
    values = {"name": name, "gpu": gpu, "max_price": f"{Decimal(repr(max_price)):f}", "action": "alert"}
    if asks:
        values |= {"action": "ask", "launch.max_runtime": _RUNTIME, "launch.max_total": "1"}
    draft = draft_watch(config, None, values)
    if not draft.is_writable:
        raise UsageError(f"{draft.file} cannot be written: the owner must add the watch")
    save_draft(draft, draft.version)
    action = f"watch {draft.name} added: {clean(why, 200)}"
    record_audit(draft.settings, "agent (gpuwatch mcp)", action, subject=draft.name, watch=draft.name)
    return {"watch": draft.name, "file": str(draft.file), "diff": draft.diff, "next": "the owner reloads the daemon"}
