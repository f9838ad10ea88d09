"""Progress for logs and pipes."""

from __future__ import annotations

from collections.abc import Callable

import click

_LINE_EVERY_S = 10.0


class LineProgress:
    """Progress lines for logs and pipes; prints nothing for work under ten seconds."""

    def __init__(self, title: str, clock: Callable[[], float]) -> None:
        self._title = title
        self._clock = clock
        self._last = clock()

    def report(self, label: str, done: int, total: int) -> None:
        """Print the progress if a line is due."""
        now = self._clock()
        if now - self._last >= _LINE_EVERY_S:
            self._last = now
            click.echo(
                f"{self._title}{label}: {done / total:.0%}" if total else f"{self._title}{label}: {done:,}", err=True
            )
