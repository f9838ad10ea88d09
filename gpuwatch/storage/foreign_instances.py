"""Labelled instances that the owner said are not of this installation, as rows."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from gpuwatch.storage.answer_changes import clean
from gpuwatch.storage.executor import CoreExecutor
from gpuwatch.storage.watch_states import to_ms

_OF = "SELECT instance_id FROM stranger WHERE provider = ?"
_SAVE = """INSERT INTO stranger (provider, instance_id, at_ms) VALUES (?, ?, ?)
 ON CONFLICT (provider, instance_id) DO NOTHING"""
_DELETE = "DELETE FROM stranger WHERE provider = ? AND instance_id = ?"


def load_foreign_instances(connection: Connection, provider: str) -> frozenset[str]:
    """Their ids at a provider."""
    return frozenset(instance_id for (instance_id,) in CoreExecutor(connection).rows(_OF, (provider,)))


def save_foreign_instance(connection: Connection, provider: str, instance_id: str, now: datetime) -> bool:
    """It is not ours; False: that was known."""
    return CoreExecutor(connection).run(_SAVE, (provider, clean(instance_id, 64), to_ms(now))) > 0


def delete_foreign_instance(connection: Connection, provider: str, instance_id: str) -> None:
    """It is ours after all."""
    CoreExecutor(connection).run(_DELETE, (provider, instance_id))
