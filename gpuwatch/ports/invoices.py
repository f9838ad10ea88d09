"""The port to what providers charged, as it is stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from typing import Protocol

from gpuwatch.domain.launches.invoices import InvoiceRow


class InvoiceRepository(Protocol):
    """Keeps charges by provider, instance, UTC day and kind."""

    def all(self, provider: str | None = None) -> Sequence[InvoiceRow]:
        """What is known, oldest day first. Raises StoreError."""

    def final(self, provider: str) -> Collection[tuple[str, date]]:
        """(instance, day) whose charges will not change any more. Raises StoreError."""

    def keep(self, rows: Sequence[InvoiceRow]) -> int:
        """Keep rows; each (provider, instance, day) among them is as these rows say, but what is final stays unless
        they are final, too. Answers how many rows were kept. Raises StoreError.
        """
