"""Notes rows that change after they may be in a lake: an import of old days, a clock that was set back."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, select, update

from gpuwatch.storage.history.recording.price_sources import provider_of_source
from gpuwatch.storage.setup.side_tables import lake


def note_late(connection: Connection, source: str, from_s: int) -> None:
    """Note in every lake that rows of this time changed after it was written: it is written anew from there on.

    Args:
        source: a name in the history.
    """
    provider = provider_of_source(source)
    query = select(lake.c.url, lake.c.verified_until_s, lake.c.next_until_s, lake.c.late)
    for url, verified_until_s, next_until_s, text in connection.execute(query).all():
        if from_s < max(verified_until_s or 0, next_until_s or 0):
            late = late_of(text)
            write_late(connection, url, late | {provider: min(from_s, late.get(provider, from_s))})


def late_of(text: str | None) -> dict[str, int]:
    """Provider → from when on its parts of a lake are written anew."""
    return msgspec.json.decode(text or "{}", type=dict[str, int])


def write_late(connection: Connection, url: str, late: dict[str, int]) -> None:
    """Store it."""
    text = msgspec.json.encode(late).decode() if late else None
    connection.execute(update(lake).where(lake.c.url == url).values(late=text))
