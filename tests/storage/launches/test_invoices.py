"""Provider charges: stored by instance and day, replaced as a whole, never changed once final."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from gpuwatch.domain.launches.money.charge_comparison import InvoiceRow
from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository
from gpuwatch.storage.setup.database import Database

DAY = date(2026, 11, 20)


def a_row(microusd: int, **changes: Any) -> InvoiceRow:
    plain = {"provider": "vastai", "instance_id": "1", "day": DAY, "kind": "gpu", "final": False}
    return InvoiceRow(microusd=microusd, **(plain | changes))


def test_charges_come_back_as_they_were_kept(database: Database) -> None:
    book = SqlInvoiceRepository(database)
    rows = [
        a_row(5_000_000_000, day=date(2026, 11, 19)),
        a_row(-7, kind="other", final=True),
        a_row(1, provider="runpod", instance_id="x"),
    ]
    assert book.save(rows) == 3
    assert sorted(book.all(), key=lambda row: -row.microusd) == [rows[0], rows[2], rows[1]]


def test_an_instances_day_is_replaced_whole(database: Database) -> None:
    book = SqlInvoiceRepository(database)
    book.save([a_row(1), a_row(2, kind="disk"), a_row(3, day=date(2026, 11, 19)), a_row(4, instance_id="2")])
    book.save([a_row(10)])
    assert sorted(row.microusd for row in book.all()) == [3, 4, 10]


def test_what_is_final_is_not_taken_back_by_what_is_not(database: Database) -> None:
    book = SqlInvoiceRepository(database)
    book.save([a_row(1, final=True)])
    assert book.save([a_row(9)]) == 0
    assert [row.microusd for row in book.all()] == [1]
    assert book.save([a_row(2, final=True)]) == 1
    assert [row.microusd for row in book.all()] == [2]


def test_a_day_is_final_when_all_of_it_is(database: Database) -> None:
    book = SqlInvoiceRepository(database)
    book.save([a_row(1, final=True), a_row(2, kind="disk"), a_row(3, instance_id="2", final=True)])
    assert book.final_days("vastai") == {("2", DAY)}
    assert book.final_days("runpod") == set()


@pytest.mark.parametrize("rows", [[], ()])
def test_nothing_to_keep_is_nothing(database: Database, rows: Any) -> None:
    assert SqlInvoiceRepository(database).save(rows) == 0
