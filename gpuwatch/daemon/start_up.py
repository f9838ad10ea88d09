"""Warnings at the start of the daemon: settings that are valid, but with which the owner would learn nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from gpuwatch import notifiers
from gpuwatch.bootstrap.polling_plans import polling_warnings
from gpuwatch.settings import Settings
from gpuwatch.storage.setup.database import Database

log = logging.getLogger(__name__)


def log_start_up_warnings(settings: Settings, store: Database) -> None:
    """Log each warning once; called at every start, and for reloaded settings."""
    for text in start_up_warnings(settings, store):
        log.warning("%s", text)


def start_up_warnings(settings: Settings, store: Database | None = None) -> Iterator[str]:
    """Return one line each: what is missing, its consequence, what to do."""
    if not settings.watches:
        yield _no_watch(settings)
    if not settings.channels:
        sections = ", ".join(f"[notify.{name}]" for name in notifiers.names())
        yield (
            "no channel is configured: alerts appear only in this log and in `gpuwatch alerts`; "
            f"add one of {sections}, then run: gpuwatch notify"
        )
    for name, channel in settings.channels.items():
        if channel.options.get("webhook") and not settings.web.enabled:
            yield f"notify.{name}.webhook: updates require [web] enabled = true; gpuwatch polls the bot instead"
    yield from polling_warnings(settings, store)


def _no_watch(settings: Settings) -> str:
    where = settings.source_file or "the settings (no file was found)"
    mend = "add a [[watch]]" if settings.source_file else "write an example with: gpuwatch init"
    gpus = settings.record_gpus
    effect = f"gpuwatch only records the prices of {', '.join(gpus[:5])}" if gpus else "gpuwatch polls no marketplace"
    more = f" and {len(gpus) - 5} more" if len(gpus) > 5 else ""
    return f"there is no [[watch]] in {where}: {effect}{more}; it reports and rents nothing, except for jobs; {mend}"
