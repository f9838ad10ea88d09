"""Words of providers that were met before: GPU spellings, fields, reasons to skip a row. Each is told once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from gpuwatch.storage.answer_changes import clean
from gpuwatch.storage.executor import CoreExecutor
from gpuwatch.storage.watch_states import to_ms

_NOTE = """INSERT INTO seen_word (provider, kind, word, first_seen_ms) VALUES (?, ?, ?, ?)
 ON CONFLICT (provider, kind, word) DO NOTHING"""


def was_seen_before(connection: Connection, provider: str, kind: str, word: str, now: datetime) -> bool:
    """Was this word met before? It has been, from now on; whoever notes it first is the one to tell."""
    row = (provider, clean(kind, 16), clean(word, 200), to_ms(now))
    return CoreExecutor(connection).run(_NOTE, row) == 0
