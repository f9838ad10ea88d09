"""A lake in a bucket, of moto's S3 on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.history.market_history import MarketFilter, MarketHistory
from gpuwatch.errors import StoreError
from gpuwatch.storage.history.lake.lake_place import open_place
from gpuwatch.storage.history.lake.lake_reader import open_with_lake
from gpuwatch.storage.history.lake.lake_writer import write_lake
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.history.queries.stored_prices import read_market_history
from gpuwatch.storage.setup.database import Database
from tests.jobs.store_server import s3_server
from tests.storage.aged_store import START, age

pytestmark = pytest.mark.slow
BUCKET = "s3://prices/gpuwatch's lake"
END = START + timedelta(days=12)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from pyarrow import fs

    with s3_server() as env:
        for name, text in env.items():
            monkeypatch.setenv(name, text)
        host = env["AWS_ENDPOINT_URL"].removeprefix("http://")
        fs.S3FileSystem(endpoint_override=host, scheme="http", allow_bucket_creation=True).create_dir("prices")
        yield


def parts_of(history: MarketHistory) -> tuple[Any, ...]:
    return history.listings, list(history.intervals), list(history.polls)


@pytest.mark.usefixtures("bucket")
def test_a_bucket_answers_as_the_store_did(sqlite_database: Database) -> None:
    age(sqlite_database, 0, 12)
    span = MarketFilter(), START - timedelta(days=1), END
    expected = parts_of(read_market_history(sqlite_database, *span))
    place = open_place(BUCKET)
    written = list(write_lake(sqlite_database, place, END))
    assert {part.dataset for part in written} == {"intervals", "hourly", "polls"}
    assert list(write_lake(sqlite_database, place, END)) == []
    prune(sqlite_database, timedelta(days=3), END)
    with open_with_lake(sqlite_database, BUCKET, *span) as history:
        assert parts_of(read_market_history(history, *span)) == expected
    place.delete(written[0].name)
    with (
        pytest.raises(StoreError, match=f"cannot read {BUCKET}/{written[0].name}"),
        open_with_lake(sqlite_database, BUCKET, *span),
    ):
        pass


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_is_not_there_is_an_error_of_one_line(sqlite_database: Database, tmp_path: Path) -> None:
    age(sqlite_database, 0, 2)
    with pytest.raises(StoreError, match="cannot write s3://elsewhere/x/") as raised:
        list(write_lake(sqlite_database, open_place("s3://elsewhere/x"), END))
    assert "\n" not in str(raised.value)
